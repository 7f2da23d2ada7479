//! A stand-in for the Kubernetes API server: one in-process HTTP server that kube clients can list, watch and write.
//!
//! Owns: the few kinds that the gateway and the simulated operator use, with the parts of the API's behaviour that they rely on (versions,
//! conflicts, graceful deletion, finalizers, garbage collection, watches and their expiry), and faults on command. Must not: know the
//! operator, the gateway or a kubelet. It serves where no cluster may be needed (the demo) and where a real server cannot be made to fail
//! (tests of watch faults); everything else is tested against a real one.
//!
//! Not here: authentication, admission, schemas, server-side apply, strategic merge and JSON patches (415), `sendInitialEvents`.
//! Life of a request: `server` → `route` → `store` (`object`, `garbage`) or `watch`; `faults` has a say first.

mod faults;
mod garbage;
mod log;
mod object;
mod page;
mod query;
mod refusal;
mod route;
mod server;
mod store;
mod watch;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use faults::{Cut, Faults, Verb};
pub use refusal::Refusal;
pub use route::Kind;
pub use store::{Deletion, Key, Store};
pub use watch::{Activity, Counts};

use server::Shared;

/// A running stand-in; dropping it ends it and every connection to it.
pub struct StandIn {
    shared: Arc<Shared>,
    url: String,
    dir: tempfile::TempDir,
    _tasks: JoinSet<()>,
}

impl StandIn {
    /// Starts one on a free port of 127.0.0.1, without objects but for the namespace `default`.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("kubeconfig"), kubeconfig(&url))?;
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(server::accept(listener, shared.clone()));
        Ok(Self { shared, url, dir, _tasks: tasks })
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A kubeconfig file for it, there as long as the stand-in is.
    pub fn kubeconfig(&self) -> PathBuf {
        Path::new(self.dir.path()).join("kubeconfig")
    }

    /// A client with all rights.
    pub fn client(&self) -> kube::Result<kube::Client> {
        let url = self.url.parse::<http::Uri>().map_err(|error| kube::Error::HttpError(error.into()))?;
        kube::Client::try_from(kube::Config::new(url))
    }

    /// What goes wrong.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// The objects, for changes that need no client.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// What clients do: lists served and watches open.
    pub fn activity(&self) -> &Activity {
        &self.shared.activity
    }
}

fn kubeconfig(url: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: standin\n\
         clusters: [{{name: standin, cluster: {{server: \"{url}\"}}}}]\n\
         users: [{{name: standin, user: {{token: standin}}}}]\n\
         contexts: [{{name: standin, context: {{cluster: standin, user: standin, namespace: default}}}}]\n"
    )
}

#[cfg(test)]
mod tests;
