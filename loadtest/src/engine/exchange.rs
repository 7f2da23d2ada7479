//! One request's side of a connection while it is answered.
//!
//! Owns writing (with the faults that cut or slow it) and waiting (during which the client's going away and the engine's
//! changes of mood are seen at once). Every way to end early is a [`Stop`]; what is written in between is decided by
//! `stream` and `reply`.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::config::Ending;
use super::events::KEEP_ALIVE;
use super::fault::Fault;
use super::mood::{Fate, Hang, Mood};

/// Bytes of following requests that are kept while one is answered.
const MAX_AHEAD: usize = 64 * 1024;

/// Why an answer ends before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The client is gone, or half of it: engines do not tell these apart.
    Gone,
    /// The connection is to be reset.
    Reset,
    /// The connection is to be closed.
    Fin,
    /// The engine was told to end running requests so.
    Ending(Ending),
}

pub(crate) struct Exchange<'a> {
    pub(crate) reader: ReadHalf<'a>,
    pub(crate) writer: WriteHalf<'a>,
    pub(crate) ahead: &'a mut Vec<u8>,
    pub(crate) mood: watch::Receiver<Mood>,
    /// The number of [`Mood::once`] when this request began.
    pub(crate) began: u64,
    pub(crate) fault: Option<Fault>,
    /// Set for streams whose engine sends comments.
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) written: u64,
    pub(crate) last_write: Instant,
}

impl Exchange<'_> {
    /// Writes all of `bytes`, or what the fault leaves of them.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let (limit, stop) = match self.fault {
            Some(Fault::ResetAt { byte }) => (byte, Stop::Reset),
            Some(Fault::FinAt { byte }) => (byte, Stop::Fin),
            _ => (u64::MAX, Stop::Fin),
        };
        let left = usize::try_from(limit.saturating_sub(self.written)).unwrap_or(usize::MAX);
        if left <= bytes.len() {
            self.put(&bytes[..left]).await?;
            return Err(stop);
        }
        self.put(bytes).await
    }

    async fn put(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        if let Some(Fault::Loris { bytes: size, every_ms }) = self.fault {
            for piece in bytes.chunks(size.max(1)) {
                self.put_now(piece).await?;
                self.pause(Instant::now() + Duration::from_millis(every_ms)).await?;
            }
            return Ok(());
        }
        self.put_now(bytes).await
    }

    async fn put_now(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.writer.write_all(bytes).await.map_err(|_| Stop::Gone)?;
        self.written += bytes.len() as u64;
        self.last_write = Instant::now();
        Ok(())
    }

    /// Waits until `until` and until no hang is on, watching both the client and the engine.
    pub(crate) async fn pause(&mut self, until: Instant) -> Result<(), Stop> {
        loop {
            let mood = *self.mood.borrow_and_update();
            let hung = mood.hang != Hang::None;
            match mood.fate_since(self.began) {
                _ if hung => {}
                Fate::Run => {}
                Fate::End(ending) => return Err(Stop::Ending(ending)),
                Fate::Reset => return Err(Stop::Reset),
            }
            let now = Instant::now();
            if !hung && until <= now {
                return self.look();
            }
            let beat = self.keep_alive.filter(|_| mood.hang != Hang::Process).map(|every| self.last_write + every);
            let wake = beat.map_or(until, |beat| if hung { beat } else { beat.min(until) });
            let may_wake = !hung || beat.is_some();
            tokio::select! {
                biased;
                stop = gone(&self.reader, self.ahead) => return Err(stop),
                changed = self.mood.changed() => changed.map_err(|_| Stop::Fin)?,
                () = sleep_until(wake), if may_wake => {
                    if beat.is_some_and(|beat| beat <= Instant::now()) {
                        self.put_now(KEEP_ALIVE).await?;
                    }
                }
            }
        }
    }

    /// Waits for `future`, watching both the client and the engine.
    pub(crate) async fn watch<T>(&mut self, future: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::pin!(future);
        loop {
            let mood = *self.mood.borrow_and_update();
            match mood.fate_since(self.began) {
                Fate::Run => {}
                Fate::End(ending) => return Err(Stop::Ending(ending)),
                Fate::Reset => return Err(Stop::Reset),
            }
            tokio::select! {
                biased;
                done = &mut future => return Ok(done),
                stop = gone(&self.reader, self.ahead) => return Err(stop),
                changed = self.mood.changed() => changed.map_err(|_| Stop::Fin)?,
            }
        }
    }

    /// Waits as long as this hang is on, without a byte.
    pub(crate) async fn while_hung(&mut self, hang: Hang) -> Result<(), Stop> {
        while self.mood.borrow_and_update().hang == hang {
            tokio::select! {
                biased;
                stop = gone(&self.reader, self.ahead) => return Err(stop),
                changed = self.mood.changed() => changed.map_err(|_| Stop::Fin)?,
            }
        }
        Ok(())
    }

    /// Never writes again; ends when the client does.
    pub(crate) async fn be_silent(&mut self) -> Stop {
        gone(&self.reader, self.ahead).await
    }

    /// One look at the client without waiting.
    fn look(&mut self) -> Result<(), Stop> {
        if self.ahead.len() >= MAX_AHEAD {
            return Ok(());
        }
        match self.reader.try_read_buf(self.ahead) {
            Ok(0) => Err(Stop::Gone),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
            Err(_) => Err(Stop::Gone),
        }
    }
}

/// Ends when the client closes its side. Requests that it sends meanwhile are kept, up to a bound.
async fn gone(reader: &ReadHalf<'_>, ahead: &mut Vec<u8>) -> Stop {
    loop {
        if ahead.len() >= MAX_AHEAD {
            // Nothing can be seen behind unread bytes; look again later.
            sleep(Duration::from_millis(50)).await;
            continue;
        }
        if reader.readable().await.is_err() {
            return Stop::Gone;
        }
        match reader.try_read_buf(ahead) {
            Ok(0) => return Stop::Gone,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return Stop::Gone,
        }
    }
}
