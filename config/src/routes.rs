//! Which further paths may be routed.
//!
//! Owns: the refusal of paths by which an engine is controlled rather than asked. Must not: hold the built-in allow-list, which the
//! gateway owns. Next step of the path: the gateway's `proxy/route`.

use crate::problem::{Place, Problems, Wrong};

/// Last segments of control paths of vLLM and SGLang. Whoever reaches one can load foreign adapters, stop an engine, empty its caches
/// or run code in its workers, so no configuration opens them to clients. Refused under any prefix.
const CONTROL: &[&str] = &[
    "abort_request",
    "abort_requests",
    "clear_hicache_storage_backend",
    "close_session",
    "collective_rpc",
    "destroy_weights_update_group",
    "flush_cache",
    "freeze_gc",
    "get_weights_by_name",
    "init_weights_update_group",
    "init_weight_transfer_engine",
    "invocations",
    "load_lora_adapter",
    "open_session",
    "pause",
    "pause_generation",
    "release_memory_occupation",
    "reset_encoder_cache",
    "reset_mm_cache",
    "reset_prefix_cache",
    "resume",
    "resume_memory_occupation",
    "resume_generation",
    "scale_elastic_ep",
    "server_info",
    "set_internal_state",
    "set_trace_level",
    "shutdown",
    "sleep",
    "slow_down",
    "start_profile",
    "stop_profile",
    "unload_lora_adapter",
    "update_weights",
    "update_weights_from_disk",
    "update_weights_from_distributed",
    "update_weights_from_tensor",
    "wake_up",
];

/// Paths that the gateway answers itself.
const OWN: &[&str] = &["/v1/models", "/livez", "/readyz"];

/// Checks the list.
pub(crate) fn check(extra: &[String], problems: &mut Problems) {
    let place = Place::new("routes.extra");
    for (index, path) in extra.iter().enumerate() {
        if let Err(wrong) = one(path) {
            problems.add(&place, wrong.wrong, wrong.right);
        }
        if extra.iter().take(index).any(|earlier| earlier == path) {
            problems.add(&place, format!("{path:?} is listed twice"), "list it once");
        }
    }
}

fn one(path: &str) -> Result<(), Wrong> {
    let wrong = |what: &str, right: &str| Err(Wrong::new(format!("{path:?} {what}"), right));
    if !path.starts_with('/') {
        return wrong("does not begin with /", "write the whole path, such as /v1/audio/transcriptions");
    }
    if !path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~".contains(&b)) {
        return wrong(
            "has characters that an exact path cannot have",
            "write letters, digits and - . _ ~ / without query, pattern or escapes",
        );
    }
    if path.split('/').skip(1).any(|segment| matches!(segment, "" | "." | "..")) {
        return wrong("has an empty or a dotted segment", "write the path as clients send it");
    }
    if OWN.contains(&path) || path.starts_with("/v1/models/") {
        return wrong("is answered by the gateway itself", "leave it out");
    }
    if path.split('/').any(|segment| CONTROL.contains(&segment.to_ascii_lowercase().as_str())) {
        return wrong("controls the engine", "leave it out and reach the engine directly for that");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let check = |path: &str, expect: &str| match one(path) {
            Ok(()) => assert_eq!(expect, "", "{path:?}"),
            Err(wrong) => assert!(!expect.is_empty() && wrong.wrong.contains(expect), "{path:?}: {}", wrong.wrong),
        };
        check("/v1/audio/transcriptions", "");
        check("/generate", "");
        check("v1/x", "begin");
        check("", "begin");
        check("/", "segment");
        check("/v1/", "segment");
        check("/v1/../x", "segment");
        check("/v1/x?y", "characters");
        check("/v1/*", "characters");
        check("/v1/%6coad", "characters");
        check("/v1/models", "itself");
        check("/v1/models/x", "itself");
        check("/v1/load_lora_adapter", "controls");
        check("/v1/Load_LoRA_adapter", "controls");
        check("/sleep", "controls");
        check("/collective_rpc/x", "controls");
    }
}
