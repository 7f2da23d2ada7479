//! A client's stream as the tests of single events drive it.

use bytes::Bytes;

use super::support::settings;
use crate::resume::{Caps, End, Plan, Refusal, Resend, Route, Watch, Watched};
use crate::sse::Out;

/// A client's stream.
pub(super) struct Client {
    pub(super) watch: Watch,
    pub(super) sent: Vec<u8>,
    pub(super) body: Bytes,
    pub(super) token_ids: bool,
}

impl Client {
    pub(super) fn new(route: Route, body: impl Into<Bytes>) -> Self {
        Self { watch: Watch::new(route, &settings(false)), sent: Vec::new(), body: body.into(), token_ids: false }
    }

    pub(super) fn with_token_ids(body: impl Into<Bytes>) -> Self {
        let mut client = Self { token_ids: true, ..Self::new(Route::Chat, body) };
        assert!(client.watch.stream().first_body(&client.body.clone(), &settings(true)).is_some());
        client
    }

    pub(super) fn feed<'e>(&mut self, events: impl IntoIterator<Item = &'e String>) -> Watched {
        let mut out = Out::default();
        for event in events {
            let watched = self.watch.on_chunk(Bytes::from(event.clone()), &mut out);
            self.sent.extend_from_slice(&out.take());
            if watched != Watched::More {
                return watched;
            }
        }
        Watched::More
    }

    pub(super) fn end(&mut self, clean: bool) -> End {
        let mut out = Out::default();
        let end = self.watch.on_end(clean, &mut out);
        self.sent.extend_from_slice(&out.take());
        end
    }

    pub(super) fn plan(&mut self) -> Plan {
        self.watch.stream().plan(&self.body, Caps::default(), &settings(self.token_ids))
    }

    /// Plans without a leader that could count.
    pub(super) fn send(&mut self) -> Resend {
        loop {
            match self.plan() {
                Plan::Send(resend) => return resend,
                Plan::Ask(ask) => self.watch.stream().answered(ask, None),
                plan @ (Plan::Fresh | Plan::Finish(_) | Plan::Refuse(_)) => panic!("{plan:?}"),
            }
        }
    }

    pub(super) fn refusal(&mut self) -> Refusal {
        loop {
            match self.plan() {
                Plan::Refuse(refusal) => return refusal,
                Plan::Ask(ask) => self.watch.stream().answered(ask, None),
                plan @ (Plan::Fresh | Plan::Finish(_) | Plan::Send(_)) => panic!("{plan:?}"),
            }
        }
    }
}
