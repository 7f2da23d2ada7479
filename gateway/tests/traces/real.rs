//! The real OpenTelemetry collector between the gateway's exporter and the receiver: what it understood is what it passes on.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::arrives;
use super::receiver::collector;

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Built once by `tests/collector/build`.
fn binary() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/collector/build");
    let built = Command::new(&script).stderr(Stdio::inherit()).output().unwrap();
    assert!(built.status.success(), "{} failed", script.display());
    String::from_utf8(built.stdout).unwrap().trim_end().to_owned()
}

/// A port of a loopback address that belongs to this process alone, so that nobody takes it before the collector does: the collector
/// cannot say which port it was given.
fn free_address() -> String {
    let id = std::process::id();
    let listener = TcpListener::bind(format!("127.83.{}.{}:0", id / 250 % 250 + 1, id % 250 + 1)).unwrap();
    listener.local_addr().unwrap().to_string()
}

async fn listens(address: &str) {
    let until = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(address).await.is_err() {
        assert!(Instant::now() < until, "the collector does not listen at {address}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_collector_understands_every_span() {
    let mut tasks = JoinSet::new();
    let (behind, received) = collector(false, &mut tasks).await;
    let (grpc, http) = (free_address(), free_address());
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("collector.yaml");
    let text = format!(
        "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '{grpc}'}}, http: {{endpoint: '{http}'}}}}}}}}\n\
         exporters: {{otlp_http: {{endpoint: '{behind}', compression: none, sending_queue: {{enabled: false}}}}}}\n\
         service: {{telemetry: {{metrics: {{level: none}}}}, pipelines: {{traces: {{receivers: [otlp], exporters: [otlp_http]}}}}}}\n"
    );
    fs::write(&config, text).unwrap();
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let child = Command::new(binary()).arg("--config").arg(&config).stderr(log).spawn().unwrap();
    let _running = Running(child);
    for (address, protocol) in [(grpc, "grpc"), (http, "http/protobuf")] {
        listens(&address).await;
        arrives(&format!("http://{address}"), protocol, &received).await;
    }
}
