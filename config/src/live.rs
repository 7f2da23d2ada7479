//! Which settings a running process cannot take over.
//!
//! Owns: the list of them, and the configuration that results: new where possible, old where not. Must not: apply anything.
//! Next step of the path: `reload` reports both.

use crate::model::Config;
use crate::settings::process;

/// `new` with the settings of `old` that hold until the next start, and the paths of those that `new` wanted changed.
pub(crate) fn merge(old: &Config, mut new: Config) -> (Config, Vec<&'static str>) {
    let mut kept = Vec::new();
    keep(process::LISTEN.path, &old.listen, &mut new.listen, &mut kept);
    keep(process::ADMIN.path, &old.admin, &mut new.admin, &mut kept);
    keep(process::WORKERS.path, &old.workers, &mut new.workers, &mut kept);
    keep("source", &old.source, &mut new.source, &mut kept);
    keep(process::MEMBERSHIP.path, &old.membership, &mut new.membership, &mut kept);
    keep(process::CONNECTIONS.path, &old.limits.connections, &mut new.limits.connections, &mut kept);
    keep(process::LOG_FORMAT.path, &old.log.format, &mut new.log.format, &mut kept);
    let (before, after) = (old.telemetry, &mut new.telemetry);
    keep(process::REQUEST_METRICS.path, &before.request_metrics, &mut after.request_metrics, &mut kept);
    keep(process::MIRROR_NAMES.path, &before.mirror_names, &mut after.mirror_names, &mut kept);
    keep(process::KEEP_NOTABLE.path, &before.keep_notable, &mut after.keep_notable, &mut kept);
    (new, kept)
}

fn keep<T: PartialEq + Clone>(path: &'static str, old: &T, new: &mut T, kept: &mut Vec<&'static str>) {
    if old != new {
        new.clone_from(old);
        kept.push(path);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::model::{KubernetesSource, LogFormat, Membership, Source};
    use crate::settings;

    /// The table and `merge` agree on what needs a restart.
    #[test]
    fn the_table_says_the_same() {
        let old = Config::default();
        let mut new = old.clone();
        let elsewhere = SocketAddr::from(([127, 0, 0, 1], 1));
        (new.listen, new.admin, new.workers) = (elsewhere, elsewhere, old.workers + 1);
        new.source = Source::Kubernetes(KubernetesSource { all_namespaces: true, ..KubernetesSource::default() });
        (new.membership, new.log.format) = (Membership::Service, LogFormat::Text);
        new.limits.connections += 1;
        new.telemetry.request_metrics = !old.telemetry.request_metrics;
        new.telemetry.mirror_names = !old.telemetry.mirror_names;
        new.telemetry.keep_notable = !old.telemetry.keep_notable;
        let (merged, kept) = merge(&old, new);
        assert_eq!(merged, old);
        let source = ["kubeconfig", "namespace", "all_namespaces", "manifests", "leaders"];
        let mut expect: Vec<_> = settings::all().filter(|row| !row.live && !source.contains(&row.path)).map(|row| row.path).collect();
        expect.push("source");
        expect.sort_unstable();
        let mut kept = kept;
        kept.sort_unstable();
        assert_eq!(kept, expect);
    }
}
