//! A real kube-apiserver over a real etcd on loopback, with the ModelDeployment CRD, and nothing else: no scheduler, no kubelet, no
//! controller. What those would do, a test (or `loadtest operator`) does.
//!
//! Owns: flags, ports, credentials, stop and start over the same etcd. Must not: know any object but the CRD and the RuntimeClass that
//! Pods of the operator name. Next: `cluster` makes a namespace for one test; `service_account` makes lesser credentials.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{Mutex, OnceCell};

use crate::Outcome;
use crate::binaries;
use crate::poll::{PATIENCE, eventually};
use crate::process::{Process, Spec};

/// The CRD that a test cluster needs; shared with the simulated operator.
pub const CRD: &str = include_str!("../fixtures/crd.yaml");

/// Service addresses are loopback addresses, so that a test can listen where a ClusterIP points.
pub const SERVICE_RANGE: &str = "127.96.0.0/16";

/// Ports are looked up before they are used, so another process may take one in between.
const START_ATTEMPTS: usize = 5;

/// How the server differs from the usual one.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Serve watches straight from etcd and compact etcd every two seconds: an old version is then answered by 410 within seconds.
    pub forgetful: bool,
}

/// A running API server. Stopped, and its files removed, when dropped or when the test process ends.
pub struct ApiServer {
    dir: PathBuf,
    port: u16,
    token: String,
    options: Options,
    etcd_port: u16,
    folder: &'static Path,
    kube: Mutex<Option<Process>>,
    etcd: Process,
}

impl ApiServer {
    /// The one server that the tests of this process share. Tests keep apart by namespace ([`crate::cluster::Cluster`]).
    pub async fn shared() -> Outcome<&'static Self> {
        static SHARED: OnceCell<ApiServer> = OnceCell::const_new();
        SHARED.get_or_try_init(|| Self::start(Options::default())).await
    }

    /// A server of the test's own, for tests that stop it or change its flags.
    pub async fn start(options: Options) -> Outcome<Self> {
        let folder = binaries::apiserver_folder().await?;
        let mut last = None;
        for _ in 0..START_ATTEMPTS {
            match Self::try_start(folder, options.clone()).await {
                Ok(server) => {
                    server.install().await?;
                    return Ok(server);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| "the API server was never started".into()))
    }

    /// A client with all rights, on the caller's runtime.
    pub async fn client(&self) -> Outcome<Client> {
        self.client_with(&self.kubeconfig()).await
    }

    /// A client with the rights of a kubeconfig file.
    pub async fn client_with(&self, kubeconfig: &Path) -> Outcome<Client> {
        let file = Kubeconfig::read_from(kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        // The tests see the answers of the server as they are.
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    /// The kubeconfig file of the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.kubeconfig")
    }

    /// Writes a kubeconfig file with this token (and `namespace` as its default) and gives its path.
    pub fn write_kubeconfig(&self, name: &str, token: &str, namespace: &str) -> Outcome<PathBuf> {
        self.write_kubeconfig_for(name, token, namespace, &self.url())
    }

    /// The same for a server address in front of this one, such as a faulty proxy's.
    pub fn write_kubeconfig_for(&self, name: &str, token: &str, namespace: &str, server: &str) -> Outcome<PathBuf> {
        let path = self.dir.join(format!("{name}.kubeconfig"));
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": self.dir.join("certs/apiserver.crt")}}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
        });
        std::fs::write(&path, serde_json::to_vec_pretty(&text)?)?;
        Ok(path)
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The address that it listens on.
    pub fn address(&self) -> std::net::SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The administrator's bearer token.
    pub fn admin_token(&self) -> &str {
        &self.token
    }

    /// The `kubectl` built beside the server.
    pub fn kubectl(&self) -> PathBuf {
        self.folder.join("kubectl")
    }

    /// Stops the API server with SIGTERM, as an upgrade does, and waits for its end; etcd keeps every object. Watches end.
    pub async fn stop(&self) -> Outcome<()> {
        let Some(process) = self.kube.lock().await.take() else { return Ok(()) };
        process.signal("TERM")?;
        process.wait(PATIENCE).await?;
        Ok(())
    }

    /// Starts it again on the same port over the same etcd, and waits until it is ready.
    pub async fn restart(&self) -> Outcome<()> {
        self.stop().await?;
        *self.kube.lock().await = Some(self.spawn_kube()?);
        self.wait_ready().await
    }

    async fn try_start(folder: &'static Path, options: Options) -> Outcome<Self> {
        let dir = TempDir::with_prefix("leadgate-apiserver-")?.keep();
        let ports = free_ports::<3>()?;
        let etcd = spawn_etcd(folder, &dir, ports[0], ports[1])?;
        let token = uuid_like();
        std::fs::create_dir_all(dir.join("certs"))?;
        std::fs::write(dir.join("tokens.csv"), format!("{token},admin,admin,\"system:masters\"\n"))?;
        let server = Self { dir, port: ports[2], token, options, etcd_port: ports[0], folder, kube: Mutex::new(None), etcd };
        server.write_kubeconfig("admin", &server.token, "default")?;
        *server.kube.lock().await = Some(server.spawn_kube()?);
        server.wait_ready().await?;
        Ok(server)
    }

    fn spawn_kube(&self) -> Outcome<Process> {
        let certs = self.dir.join("certs");
        // The server makes a certificate and its RSA key in `certs` at its first start; the key serves for tokens as well.
        let key = certs.join("apiserver.key").display().to_string();
        let mut args: Vec<String> = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--cert-dir={}", certs.display()),
            format!("--secure-port={}", self.port),
            "--bind-address=127.0.0.1".into(),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
            "--authorization-mode=RBAC".into(),
            format!("--token-auth-file={}", self.dir.join("tokens.csv").display()),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={key}"),
            format!("--service-account-signing-key-file={key}"),
            "--endpoint-reconciler-type=none".into(),
            "--disable-admission-plugins=ServiceAccount".into(),
        ];
        if self.options.forgetful {
            args.extend(["--watch-cache=false".into(), "--etcd-compaction-interval=2s".into()]);
        }
        let args = args.into_iter().map(OsString::from).collect();
        let log = self.dir.join("kube-apiserver.log");
        Process::start(Spec { program: self.folder.join("kube-apiserver"), args, env: vec![], log, litter: None })
    }

    /// Ready when `/readyz` says so; fails at once when a process has ended (a port clash, usually).
    async fn wait_ready(&self) -> Outcome<()> {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            self.check_alive().await?;
            let last = match self.ask_ready().await {
                Ok(()) => return Ok(()),
                Err(error) => error.to_string(),
            };
            if std::time::Instant::now() > deadline {
                return Err(format!("the API server is not ready after {PATIENCE:?}: {last}").into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn check_alive(&self) -> Outcome<()> {
        if let Some(code) = self.etcd.exit_status()? {
            return Err(format!("etcd ended with {code}:\n{}", self.etcd.log_tail(20)).into());
        }
        let kube = self.kube.lock().await;
        let kube = kube.as_ref().ok_or("the API server is stopped")?;
        match kube.exit_status()? {
            Some(code) => Err(format!("kube-apiserver ended with {code}:\n{}", kube.log_tail(20)).into()),
            None => Ok(()),
        }
    }

    async fn ask_ready(&self) -> Outcome<()> {
        // Before the certificate file exists there is nothing to trust.
        let client = self.client().await?;
        client.request_text(::http::Request::get("/readyz").body(Vec::new())?).await?;
        Ok(())
    }

    async fn install(&self) -> Outcome<()> {
        let client = self.client().await?;
        create(Api::<RuntimeClass>::all(client.clone()), json!({"metadata": {"name": "nvidia"}, "handler": "nvidia"})).await?;
        let crds = Api::<CustomResourceDefinition>::all(client);
        let crd: serde_json::Value = serde_saphyr::from_str(CRD)?;
        create(crds.clone(), crd).await?;
        eventually(PATIENCE, "established CRD", || async {
            let crd = crds.get("modeldeployments.worker.gpustack.ai").await.map_err(|error| error.to_string())?;
            let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
            let established = conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True");
            if established { Ok(()) } else { Err(format!("{conditions:?}")) }
        })
        .await
    }
}

async fn create<K>(api: Api<K>, object: serde_json::Value) -> Outcome<()>
where
    K: kube::Resource + Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

fn spawn_etcd(folder: &Path, dir: &Path, client_port: u16, peer_port: u16) -> Outcome<Process> {
    let (client, peer) = (format!("http://127.0.0.1:{client_port}"), format!("http://127.0.0.1:{peer_port}"));
    let args = vec![
        format!("--data-dir={}", dir.join("etcd").display()),
        "--unsafe-no-fsync".into(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
    ];
    let args = args.into_iter().map(OsString::from).collect();
    // etcd is the last to end, so it takes the folder with it.
    let litter = Some(dir.to_owned());
    Process::start(Spec { program: folder.join("etcd"), args, env: vec![], log: dir.join("etcd.log"), litter })
}

/// Ports that nobody listened on just now. The caller retries if one is taken before it is used.
fn free_ports<const N: usize>() -> Outcome<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    for _ in 0..N {
        held.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
    }
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

fn uuid_like() -> String {
    format!("{:032x}", rand::random::<u128>())
}
