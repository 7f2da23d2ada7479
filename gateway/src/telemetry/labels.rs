//! Closed sets of label values: what a metric, an access line or a span may say in a word.
//!
//! Owns: the words. Must not: hold text that came from outside (field report [94]: label values that a client chooses are a way to
//! exhaust memory). A new word is a new variant, so the number of series is known when the program is compiled.

/// A value of a closed set.
pub trait Label: Copy + 'static {
    /// Every value, in the order of `index`.
    const ALL: &'static [Self];
    /// The word as it is printed.
    fn as_str(self) -> &'static str;
    /// Place in `ALL`.
    fn index(self) -> usize;
}

macro_rules! closed_set {
    ($(#[doc = $doc:literal])+ $set:ident { $($(#[doc = $vdoc:literal])+ $name:ident = $word:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $set { $($(#[doc = $vdoc])+ $name,)+ }
        impl Label for $set {
            const ALL: &'static [Self] = &[$(Self::$name,)+];
            fn as_str(self) -> &'static str { match self { $(Self::$name => $word,)+ } }
            fn index(self) -> usize { self as usize }
        }
        impl std::fmt::Display for $set {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.as_str()) }
        }
    };
}

closed_set! {
    /// Which routed path a request came by.
    Route {
        /// `/v1/chat/completions`.
        ChatCompletions = "chat_completions",
        /// `/v1/completions`.
        Completions = "completions",
        /// `/v1/embeddings`.
        Embeddings = "embeddings",
        /// `/v1/responses`.
        Responses = "responses",
        /// `/v1/messages`.
        Messages = "messages",
        /// `/v1/rerank`.
        Rerank = "rerank",
        /// `/v1/score`.
        Score = "score",
        /// `/v1/pooling`.
        Pooling = "pooling",
        /// `/v1/classify`.
        Classify = "classify",
        /// `/tokenize`.
        Tokenize = "tokenize",
        /// `/detokenize`.
        Detokenize = "detokenize",
        /// `/v1/models` and `/v1/models/{id}`, answered here.
        Models = "models",
        /// A path that the configuration added.
        Extra = "extra",
        /// Not routed.
        Other = "other",
    }
}

impl Route {
    /// A good answer of an engine means that its model ran. Not known of paths that configuration adds.
    pub fn runs_the_model(self) -> bool {
        match self {
            Self::ChatCompletions
            | Self::Completions
            | Self::Embeddings
            | Self::Responses
            | Self::Messages
            | Self::Rerank
            | Self::Score
            | Self::Pooling
            | Self::Classify => true,
            Self::Tokenize | Self::Detokenize | Self::Models | Self::Extra | Self::Other => false,
        }
    }

    /// The route of a path without its query. Paths that configuration adds are `Extra`; the caller knows them.
    pub fn of_path(path: &str) -> Self {
        match path {
            "/v1/chat/completions" => Self::ChatCompletions,
            "/v1/completions" => Self::Completions,
            "/v1/embeddings" => Self::Embeddings,
            "/v1/responses" => Self::Responses,
            "/v1/messages" => Self::Messages,
            "/v1/rerank" => Self::Rerank,
            "/v1/score" => Self::Score,
            "/v1/pooling" => Self::Pooling,
            "/v1/classify" => Self::Classify,
            "/tokenize" => Self::Tokenize,
            "/detokenize" => Self::Detokenize,
            "/v1/models" => Self::Models,
            _ if path.starts_with("/v1/models/") => Self::Models,
            _ => Self::Other,
        }
    }
}

closed_set! {
    /// How a request ended, as its client saw it.
    Outcome {
        /// A whole answer below 400.
        Ok = "ok",
        /// The leader answered 4xx and that was passed on.
        ClientError = "client_error",
        /// The leader answered 5xx and that was passed on.
        UpstreamError = "upstream_error",
        /// The gateway refused before any byte; `rejects_total` has the reason.
        Refused = "refused",
        /// The stream ended in an explicit error event.
        StreamError = "stream_error",
        /// The client went away.
        Cancelled = "cancelled",
    }
}

closed_set! {
    /// How one try at one leader ended.
    AttemptOutcome {
        /// A whole answer below 400.
        Complete = "complete",
        /// The leader answered 4xx.
        Status4xx = "status_4xx",
        /// The leader answered 5xx.
        Status5xx = "status_5xx",
        /// Nothing of the request reached the leader.
        NotSent = "not_sent",
        /// Sent, and the connection ended before the first event.
        Reset = "reset",
        /// A clock fired.
        Timeout = "timeout",
        /// Broken after the first event.
        Broken = "broken",
        /// The client went away.
        Cancelled = "cancelled",
        /// Given up by the gateway: the group is leaving or lost a member, or the gateway itself ends.
        Abandoned = "abandoned",
    }
}

closed_set! {
    /// Why a second try before the first event was allowed.
    RetryCause {
        /// Not a byte reached the leader: no connection, or a kept one was dead.
        NotSent = "not_sent",
        /// The peer refused: 503, queue full.
        PeerRefused = "peer_refused",
        /// The engine itself said that the work has ended.
        EngineEnded = "engine_ended",
        /// The group is known to be dying.
        GroupDying = "group_dying",
        /// After a cut or a silence a new connection to the same incarnation failed.
        PeerGone = "peer_gone",
    }
}

closed_set! {
    /// Why a stream had to move.
    ResumeCause {
        /// The connection was lost.
        ConnectionLost = "connection_lost",
        /// The framing did not end.
        Truncated = "truncated",
        /// The engine sent an `error` event.
        ErrorEvent = "error_event",
        /// `finish_reason` was `abort`.
        Aborted = "aborted",
        /// The stream ended without a `finish_reason` for every choice.
        NoFinish = "no_finish",
        /// Silence while the group is leaving or broken.
        Stalled = "stalled",
        /// The rest by another leader did not agree with what the client has got.
        Differed = "differed",
        /// An event could not be read.
        Unreadable = "unreadable",
    }
}

closed_set! {
    /// By which way a stream was carried on.
    ResumeWay {
        /// `continue_final_message`.
        Continue = "continue",
        /// The original request again, what was sent is swallowed.
        Replay = "replay",
        /// Token ids.
        TokenIds = "token_ids",
        /// No way was found.
        None = "none",
    }
}

closed_set! {
    /// What became of a resume.
    ResumeResult {
        /// The client got the rest.
        Resumed = "resumed",
        /// No way carries this request exactly.
        Refused = "refused",
        /// Every way was tried in vain.
        Failed = "failed",
        /// No leader came up in time.
        NoLeader = "no_leader",
        /// The client went away meanwhile.
        Cancelled = "cancelled",
        /// Over the byte or move bound.
        OverBound = "over_bound",
    }
}

closed_set! {
    /// How a stream ended (invariant 7: in exactly one of these ways).
    Ending {
        /// Whole, as the leader ended it.
        Complete = "complete",
        /// An explicit error event, then a cut.
        ErrorEvent = "error_event",
        /// The client went away.
        ClientGone = "client_gone",
    }
}

closed_set! {
    /// Which kind of token.
    TokenKind {
        /// `usage.prompt_tokens`.
        Prompt = "prompt",
        /// `usage.completion_tokens`.
        Completion = "completion",
        /// `usage.prompt_tokens_details.cached_tokens`.
        Cached = "cached",
    }
}

closed_set! {
    /// Towards whom.
    Side {
        /// Clients.
        Downstream = "downstream",
        /// Leaders.
        Upstream = "upstream",
        /// The admin port's readers.
        Admin = "admin",
    }
}

closed_set! {
    /// Which way bytes of bodies go.
    Direction {
        /// From the client.
        Request = "request",
        /// To the client.
        Response = "response",
    }
}

closed_set! {
    /// Whether something went well.
    Verdict {
        /// It did.
        Ok = "ok",
        /// It did not.
        Failed = "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<L: Label + PartialEq + std::fmt::Debug>() {
        for (place, value) in L::ALL.iter().enumerate() {
            assert_eq!(value.index(), place);
            assert!(value.as_str().chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        }
        let mut words: Vec<_> = L::ALL.iter().map(|v| v.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), L::ALL.len());
    }

    #[test]
    fn words_are_distinct_and_in_place() {
        check::<Route>();
        check::<Outcome>();
        check::<AttemptOutcome>();
        check::<RetryCause>();
        check::<ResumeCause>();
        check::<ResumeWay>();
        check::<ResumeResult>();
        check::<Ending>();
    }

    #[test]
    fn every_path_has_a_route() {
        assert_eq!(Route::of_path("/v1/chat/completions"), Route::ChatCompletions);
        assert_eq!(Route::of_path("/v1/models/a/b"), Route::Models);
        assert_eq!(Route::of_path("/v1/load_lora_adapter"), Route::Other);
    }
}
