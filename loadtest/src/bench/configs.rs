//! The configuration that each peer is run with: one thread, keep-alive to engines, no buffering of answers, no access log.
//!
//! Each is the cheapest that its manual offers for this work. Texts only; `proxies` starts the programs.

use std::fmt::Write;
use std::net::SocketAddr;

/// Client connections that every peer must be able to hold.
const CONNECTIONS: usize = 10_100;

/// HAProxy, `mode` `tcp` (forwards bytes) or `http`. It reckons with two descriptors for each connection and would not start where that is
/// more than the process may have; no row needs as many.
pub(super) fn haproxy(mode: &str, listen: SocketAddr, leaders: &[SocketAddr]) -> String {
    let http = if mode == "http" { "  option http-no-delay\n  http-reuse always\n" } else { "" };
    let mut text = format!(
        "global\n  nbthread 1\n  no strict-limits\n  maxconn {CONNECTIONS}\ndefaults\n  mode {mode}\n  maxconn {CONNECTIONS}\n  timeout connect 5s\n  \
         timeout client 10m\n  timeout server 10m\n{http}frontend clients\n  bind {listen}\n  default_backend leaders\nbackend leaders\n  \
         balance leastconn\n"
    );
    for (nth, leader) in leaders.iter().enumerate() {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "  server l{nth} {leader}");
    }
    text
}

/// nginx with its state in `dir`.
pub(super) fn nginx(dir: &str, listen: SocketAddr, leaders: &[SocketAddr]) -> String {
    let servers = leaders.iter().fold(String::new(), |text, leader| text + "    server " + &leader.to_string() + ";\n");
    format!(
        "daemon off;\nmaster_process off;\nworker_rlimit_nofile 20000;\npid {dir}/nginx.pid;\nerror_log {dir}/nginx-error.log crit;\n\
         events {{ worker_connections 19900; }}\nhttp {{\n  access_log off;\n  keepalive_requests 1000000000;\n  \
         client_max_body_size 64m;\n  client_body_temp_path {dir}/body;\n  proxy_temp_path {dir}/proxy;\n  fastcgi_temp_path {dir}/f;\n  \
         uwsgi_temp_path {dir}/u;\n  scgi_temp_path {dir}/s;\n  upstream leaders {{\n{servers}    keepalive 2000;\n    \
         keepalive_requests 1000000000;\n  }}\n  server {{\n    listen {listen} backlog=4096;\n    location / {{\n      \
         proxy_pass http://leaders;\n      proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n      \
         proxy_set_header Host $http_host;\n      proxy_buffering off;\n      proxy_request_buffering off;\n      \
         proxy_read_timeout 600s;\n    }}\n  }}\n}}\n"
    )
}

/// Envoy, as the JSON form of its YAML.
pub(super) fn envoy(listen: SocketAddr, leaders: &[SocketAddr]) -> String {
    let address = |at: &SocketAddr| serde_json::json!({"socket_address": {"address": at.ip().to_string(), "port_value": at.port()}});
    let endpoints: Vec<_> = leaders.iter().map(|leader| serde_json::json!({"endpoint": {"address": address(leader)}})).collect();
    let router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
    let manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let most = 100_000;
    serde_json::json!({"static_resources": {
        "listeners": [{
            "address": address(&listen),
            "filter_chains": [{"filters": [{"name": "http", "typed_config": {
                "@type": manager, "stat_prefix": "in", "stream_idle_timeout": "600s",
                "http_filters": [{"name": "router", "typed_config": {"@type": router}}],
                "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                    {"match": {"prefix": "/"}, "route": {"cluster": "leaders", "timeout": "0s"}}
                ]}]}
            }}]}]
        }],
        "clusters": [{
            "name": "leaders", "type": "STATIC", "connect_timeout": "5s", "lb_policy": "LEAST_REQUEST",
            "circuit_breakers": {"thresholds": [
                {"max_connections": most, "max_pending_requests": most, "max_requests": most}
            ]},
            "load_assignment": {"cluster_name": "leaders", "endpoints": [{"lb_endpoints": endpoints}]}
        }]
    }})
    .to_string()
}
