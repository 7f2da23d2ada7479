//! A bounded buffer of finished lines and the thread that writes them.
//!
//! Owns: the buffer. Must not: make its caller wait: a full buffer drops the line and counts it, because a stuck log pipe must not stop
//! requests. Lines are gathered for [`GATHER`] and written together: a wake-up and a system call for each access line cost more than all else
//! that the gateway does for a small request. Next step: standard error.

use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use prometheus::IntCounter;
use tracing_subscriber::fmt::MakeWriter;

/// How long the first line of a write waits for others.
const GATHER: Duration = Duration::from_millis(20);
/// Bytes that are written without waiting longer.
const ENOUGH: usize = 64 * 1024;
/// Bytes that wait, at most; as many can be in the thread's hands.
const BYTES: usize = 8 * 1024 * 1024;
/// Bytes of one line at most; the rest is cut.
const LINE_BYTES: usize = 16 * 1024;
/// Memory kept for the next lines after a burst.
const KEPT: usize = 2 * ENOUGH;

/// What waits for the thread.
#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Told when all lines before them are written.
    flushes: Vec<SyncSender<()>>,
    /// No writing end is left.
    closed: bool,
}

impl Waiting {
    /// Not worth waiting for more.
    fn pressing(&self) -> bool {
        self.lines.len() >= ENOUGH || !self.flushes.is_empty() || self.closed
    }
}

#[derive(Debug, Default)]
struct Buffer {
    waiting: Mutex<Waiting>,
    /// The thread has something to do.
    wake: Condvar,
}

impl Buffer {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what waits, and wakes the thread when it sleeps for the want of a line or need not gather any longer.
    fn change<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        let mut waiting = self.lock();
        let (idle, pressing) = (waiting.lines.is_empty(), waiting.pressing());
        let result = change(&mut waiting);
        let wake = (idle && !waiting.lines.is_empty()) || (!pressing && waiting.pressing());
        drop(waiting);
        if wake {
            self.wake.notify_one();
        }
        result
    }

    /// The next lines, put into `lines`, and who wants to know of them. `None`: there will be no more.
    fn take(&self, lines: &mut Vec<u8>) -> Option<Vec<SyncSender<()>>> {
        let ignore = PoisonError::into_inner;
        let waiting = self.wake.wait_while(self.lock(), |w| w.lines.is_empty() && !w.pressing()).unwrap_or_else(ignore);
        let (mut waiting, _) =
            self.wake.wait_timeout_while(waiting, GATHER, |w| !w.pressing()).unwrap_or_else(|poisoned| poisoned.into_inner());
        if waiting.closed && waiting.lines.is_empty() && waiting.flushes.is_empty() {
            return None;
        }
        std::mem::swap(&mut waiting.lines, lines);
        Some(std::mem::take(&mut waiting.flushes))
    }
}

/// Closes the buffer when the last writing end goes.
#[derive(Debug)]
struct Open(Arc<Buffer>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.change(|waiting| waiting.closed = true);
    }
}

/// Writing end of the buffer.
#[derive(Debug, Clone)]
pub struct LineWriter {
    open: Arc<Open>,
    dropped: IntCounter,
}

impl LineWriter {
    /// Starts the thread; it ends when the last writing end is dropped.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(out: impl Write + Send + 'static, dropped: IntCounter) -> io::Result<Self> {
        let buffer = Arc::new(Buffer::default());
        let open = Arc::new(Open(buffer.clone()));
        let lost = dropped.clone();
        thread::Builder::new().name("log-writer".to_owned()).spawn(move || write_lines(&buffer, out, &lost))?;
        Ok(Self { open, dropped })
    }

    /// Puts a finished line (with its line end) into the buffer, or drops and counts it.
    pub fn line(&self, line: &[u8]) {
        let (line, end): (_, &[u8]) = if line.len() > LINE_BYTES { (&line[..LINE_BYTES - 1], b"\n") } else { (line, b"") };
        let kept = self.open.0.change(|waiting| {
            let fits = waiting.lines.len() + line.len() + end.len() <= BYTES;
            if fits {
                waiting.lines.extend_from_slice(line);
                waiting.lines.extend_from_slice(end);
            }
            fits
        });
        if !kept {
            self.dropped.inc();
        }
    }

    /// Waits until every line before this call is written, at most `bound`; false when that was too short.
    pub fn flush(&self, bound: Duration) -> bool {
        let (done, wait) = sync_channel(1);
        self.open.0.change(|waiting| waiting.flushes.push(done));
        wait.recv_timeout(bound).is_ok()
    }
}

impl Write for LineWriter {
    // The subscriber hands over one finished line a call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LineWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

// An error of the output is nothing that could be logged; its lines are lost, and counted.
fn write_lines(buffer: &Buffer, mut out: impl Write, dropped: &IntCounter) {
    let mut lines = Vec::new();
    while let Some(flushes) = buffer.take(&mut lines) {
        if write_whole(&mut out, &lines).is_err() {
            dropped.inc_by(memchr::memchr_iter(b'\n', &lines).count() as u64);
        }
        drop(out.flush());
        lines.clear();
        lines.shrink_to(KEPT);
        for done in flushes {
            let _ = done.try_send(());
        }
    }
}

/// Writes all of it, also to a pipe that somebody made non-blocking: there a slow reader is waited for, as it would be at any other.
fn write_whole(out: &mut impl Write, mut lines: &[u8]) -> io::Result<()> {
    while !lines.is_empty() {
        match out.write(lines) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => lines = &lines[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(GATHER),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;

    /// An output that stands still until its gate opens.
    struct Gated(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            self.1.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn counter() -> IntCounter {
        IntCounter::new("d", "d").unwrap()
    }

    #[test]
    fn a_stuck_output_drops_lines_and_blocks_nobody() {
        let dropped = counter();
        let (gate, closed) = sync_channel(0);
        let written = Arc::new(Mutex::new(Vec::new()));
        let writer = LineWriter::start(Gated(closed, written.clone()), dropped.clone()).unwrap();
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        // Twice the bound and more: the buffer, and as much in the thread's hands.
        let lines = 2 * BYTES / line.len() + 100;
        for _ in 0..lines {
            writer.line(&line);
        }
        assert!(dropped.get() >= 100, "{}", dropped.get());
        assert!(!writer.flush(Duration::from_millis(1)));
        drop(gate);
        // With the gate gone `recv` returns at once.
        while !writer.flush(Duration::from_secs(10)) {}
        let kept = written.lock().unwrap().len() / line.len();
        assert_eq!(u64::try_from(kept).unwrap() + dropped.get(), u64::try_from(lines).unwrap());
    }

    /// Takes three bytes, then has no room, and so on; or fails for good.
    struct Halting(Arc<Mutex<Vec<u8>>>, bool, bool);

    impl Write for Halting {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.2 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if self.1 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let taken = bytes.len().min(3);
            self.0.lock().unwrap().extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_pipe_without_room_is_waited_for_and_a_broken_one_is_counted() {
        for broken in [false, true] {
            let (dropped, written) = (counter(), Arc::new(Mutex::new(Vec::new())));
            let writer = LineWriter::start(Halting(written.clone(), false, broken), dropped.clone()).unwrap();
            writer.line(b"first\n");
            writer.line(b"second\n");
            assert!(writer.flush(Duration::from_secs(10)));
            let (want, lost): (&[u8], u64) = if broken { (b"", 2) } else { (b"first\nsecond\n", 0) };
            assert_eq!((written.lock().unwrap().as_slice(), dropped.get()), (want, lost));
        }
    }

    #[test]
    fn lines_are_written_in_order_without_a_flush_and_before_the_end() {
        let (told, tell) = sync_channel(100);
        struct Tells(SyncSender<Vec<u8>>);
        impl Write for Tells {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.send(bytes.to_vec()).map(|()| bytes.len()).map_err(io::Error::other)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let writer = LineWriter::start(Tells(told), counter()).unwrap();
        writer.line(b"a\n");
        assert!(tell.recv_timeout(Duration::from_secs(10)).unwrap().starts_with(b"a\n"));
        writer.line(b"b\n");
        writer.line(&[b'c'; LINE_BYTES + 1]);
        drop(writer);
        let rest: Vec<u8> = tell.iter().flatten().collect();
        assert_eq!(rest.len(), 2 + LINE_BYTES, "the last lines are written though nobody flushed");
        assert!(rest.starts_with(b"b\nc") && rest.ends_with(b"c\n"));
    }
}
