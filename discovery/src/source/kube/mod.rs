//! The API server as a source: one list-watch for each kind and namespace.
//!
//! Owns: finding the API server and its credentials, and the set of list-watches. Must not: interpret objects. The kinds, and no others:
//! modeldeployments, pods, services; verbs list and watch. Parts: `reflector` (the loop), `api` (requests), `lines`, `backoff`.

mod api;
mod backoff;
mod lines;
mod reflector;
#[cfg(test)]
mod tests;

use std::path::Path;

use ::kube::config::{KubeConfigOptions, Kubeconfig};
use ::kube::{Client, Config};
use config::KubernetesSource;

use super::{Feed, StartError, Timing};
use crate::fact::{Kind, Str};
use api::Resource;
use reflector::Reflector;

/// Starts the list-watches. Gives their scopes.
pub(crate) async fn start(source: &KubernetesSource, feed: Feed, timing: Timing) -> Result<Vec<Str>, StartError> {
    let mut access = access(source.kubeconfig.as_deref()).await?;
    // Waits and retries are the reflector's; a second layer of them would hide failures from the status.
    access.default_retry = false;
    access.connect_timeout = Some(timing.request.min(std::time::Duration::from_secs(5)));
    access.read_timeout = None;
    let namespaces = match (source.all_namespaces, source.namespaces.is_empty()) {
        (true, _) => vec![None],
        (false, true) => vec![Some(access.default_namespace.clone())],
        (false, false) => source.namespaces.iter().cloned().map(Some).collect(),
    };
    let client = Client::try_from(access).map_err(|error| StartError::NoCluster(error.to_string()))?;
    Ok(watch(&client, namespaces, &feed, &timing))
}

/// One task for each kind and namespace.
fn watch(client: &Client, mut namespaces: Vec<Option<String>>, feed: &Feed, timing: &Timing) -> Vec<Str> {
    namespaces.sort_unstable();
    namespaces.dedup();
    let mut scopes = Vec::new();
    for namespace in namespaces {
        let scope: Str = namespace.as_deref().unwrap_or("*").into();
        for kind in Kind::ALL {
            feed.status.watch(&scope, kind, |_| {});
            let resource = Resource { kind, namespace: namespace.clone() };
            let reflector = Reflector::new(client.clone(), resource, scope.clone(), feed.clone(), timing.clone());
            feed.tasks.spawn("reflector", reflector.run());
        }
        scopes.push(scope);
    }
    scopes
}

/// An explicit kubeconfig, else the ServiceAccount's files, else `KUBECONFIG` or `~/.kube/config`.
async fn access(kubeconfig: Option<&Path>) -> Result<Config, StartError> {
    if let Some(path) = kubeconfig {
        let problem = |error: ::kube::config::KubeconfigError| StartError::Kubeconfig { path: path.to_owned(), problem: error.to_string() };
        let file = Kubeconfig::read_from(path).map_err(problem)?;
        return Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(problem);
    }
    match Config::incluster() {
        Ok(access) => Ok(access),
        Err(in_cluster) => match Config::from_kubeconfig(&KubeConfigOptions::default()).await {
            Ok(access) => Ok(access),
            Err(file) => Err(StartError::NoCluster(format!("not in a cluster ({in_cluster}), and no kubeconfig ({file})"))),
        },
    }
}
