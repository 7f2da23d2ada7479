//! Which object a path names. Pure.
//!
//! Owns: the table of kinds. Must not: know methods or queries.

use super::refusal::Refusal;

/// A kind that the stand-in holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `worker.gpustack.ai/v1alpha1`.
    ModelDeployment,
    /// `v1`.
    Pod,
    /// `v1`.
    Service,
    /// `v1`, cluster scoped. Namespaces need not exist to hold objects.
    Namespace,
    /// `v1`, cluster scoped. Here so that a list says that there are none.
    Node,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::ModelDeployment, Self::Pod, Self::Service, Self::Namespace, Self::Node];

    /// The API group; empty for core kinds.
    pub fn group(self) -> &'static str {
        match self {
            Self::ModelDeployment => "worker.gpustack.ai",
            Self::Pod | Self::Service | Self::Namespace | Self::Node => "",
        }
    }

    /// `apiVersion` of its objects.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::ModelDeployment => "worker.gpustack.ai/v1alpha1",
            Self::Pod | Self::Service | Self::Namespace | Self::Node => "v1",
        }
    }

    /// `kind` of its objects.
    pub fn name(self) -> &'static str {
        match self {
            Self::ModelDeployment => "ModelDeployment",
            Self::Pod => "Pod",
            Self::Service => "Service",
            Self::Namespace => "Namespace",
            Self::Node => "Node",
        }
    }

    /// The name in paths.
    pub fn plural(self) -> &'static str {
        match self {
            Self::ModelDeployment => "modeldeployments",
            Self::Pod => "pods",
            Self::Service => "services",
            Self::Namespace => "namespaces",
            Self::Node => "nodes",
        }
    }

    /// As messages name it: `pods`, `modeldeployments.worker.gpustack.ai`.
    pub fn resource(self) -> String {
        let group = self.group();
        if group.is_empty() { self.plural().to_owned() } else { format!("{}.{group}", self.plural()) }
    }

    /// Lives in a namespace.
    pub fn namespaced(self) -> bool {
        match self {
            Self::ModelDeployment | Self::Pod | Self::Service => true,
            Self::Namespace | Self::Node => false,
        }
    }
}

/// What follows the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    Status,
    /// `pods/NAME/binding`.
    Binding,
}

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) kind: Kind,
    /// `None`: all namespaces, or a kind without.
    pub(super) namespace: Option<String>,
    /// `None`: the collection.
    pub(super) name: Option<String>,
    pub(super) part: Part,
}

/// Reads a request path such as `/api/v1/namespaces/a/pods/p/status`.
pub(super) fn parse(path: &str) -> Result<Route, Refusal> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (api_version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] => ((*version).to_owned(), rest),
        ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
        _ => return Err(Refusal::no_such_path()),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some((*namespace).to_owned()), rest),
        _ => (None, rest),
    };
    let (plural, name, part) = match rest {
        [plural] => (plural, None, Part::Whole),
        [plural, name] => (plural, Some((*name).to_owned()), Part::Whole),
        [plural, name, "status"] => (plural, Some((*name).to_owned()), Part::Status),
        ["pods", name, "binding"] => (&"pods", Some((*name).to_owned()), Part::Binding),
        _ => return Err(Refusal::no_such_path()),
    };
    let known = Kind::ALL.into_iter().find(|kind| kind.plural() == *plural && kind.api_version() == api_version);
    let kind = known.filter(|kind| kind.namespaced() || namespace.is_none()).ok_or_else(Refusal::no_such_path)?;
    if kind.namespaced() && namespace.is_none() && name.is_some() {
        return Err(Refusal::no_such_path());
    }
    Ok(Route { kind, namespace, name, part })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_objects() {
        let check = |path: &str, expect: Option<(Kind, Option<&str>, Option<&str>, Part)>| {
            let found = parse(path).ok();
            let found = found.as_ref().map(|r| (r.kind, r.namespace.as_deref(), r.name.as_deref(), r.part));
            assert_eq!(found, expect, "{path}");
        };
        check("/api/v1/pods", Some((Kind::Pod, None, None, Part::Whole)));
        check("/api/v1/namespaces/a/pods", Some((Kind::Pod, Some("a"), None, Part::Whole)));
        check("/api/v1/namespaces/a/pods/p/status", Some((Kind::Pod, Some("a"), Some("p"), Part::Status)));
        check("/api/v1/namespaces/a/pods/p/binding", Some((Kind::Pod, Some("a"), Some("p"), Part::Binding)));
        check(
            "/apis/worker.gpustack.ai/v1alpha1/namespaces/a/modeldeployments/m",
            Some((Kind::ModelDeployment, Some("a"), Some("m"), Part::Whole)),
        );
        check("/api/v1/namespaces", Some((Kind::Namespace, None, None, Part::Whole)));
        check("/api/v1/namespaces/a", Some((Kind::Namespace, None, Some("a"), Part::Whole)));
        check("/api/v1/nodes", Some((Kind::Node, None, None, Part::Whole)));
        check("/apis/worker.gpustack.ai/v1/namespaces/a/modeldeployments", None);
        check("/api/v1/pods/p", None);
        check("/api/v1/secrets", None);
        check("/", None);
    }
}
