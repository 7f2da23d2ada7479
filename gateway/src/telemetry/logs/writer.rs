//! A bounded queue of finished lines and the thread that writes them.
//!
//! Owns: the queue. Must not: make its caller wait: a full queue drops the line and counts it, because a stuck log pipe must not stop
//! requests. Next step: standard error.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use prometheus::IntCounter;
use tracing_subscriber::fmt::MakeWriter;

/// Lines in the queue at most.
const LINES: usize = 8192;
/// Bytes of one line at most; the rest is cut. Together: 128 MiB of queue in the worst case, a few MiB in practice.
const LINE_BYTES: usize = 16 * 1024;

enum Item {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// Writing end of the queue.
#[derive(Debug, Clone)]
pub struct LineWriter {
    queue: SyncSender<Item>,
    dropped: IntCounter,
}

impl LineWriter {
    /// Starts the thread; it ends when the last writing end is dropped.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(out: impl Write + Send + 'static, dropped: IntCounter) -> io::Result<Self> {
        let (queue, lines) = sync_channel(LINES);
        thread::Builder::new().name("log-writer".to_owned()).spawn(move || write_lines(&lines, out))?;
        Ok(Self { queue, dropped })
    }

    /// Puts a finished line (with its line end) into the queue, or drops and counts it.
    pub fn line(&self, mut line: Vec<u8>) {
        if line.len() > LINE_BYTES {
            line.truncate(LINE_BYTES - 1);
            line.push(b'\n');
        }
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.queue.try_send(Item::Line(line)) {
            self.dropped.inc();
        }
    }

    /// Waits until every line before this call is written, at most `bound`; false when that was too short or the queue is full.
    pub fn flush(&self, bound: Duration) -> bool {
        let (done, wait) = sync_channel(1);
        self.queue.try_send(Item::Flush(done)).is_ok() && wait.recv_timeout(bound).is_ok()
    }
}

impl Write for LineWriter {
    // The subscriber hands over one finished line a call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.line(line.to_vec());
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

// An error of the output is nothing that could be logged; the lines are lost as they would be without a queue.
fn write_lines(lines: &Receiver<Item>, mut out: impl Write) {
    while let Ok(item) = lines.recv() {
        match item {
            Item::Line(line) => drop(out.write_all(&line)),
            Item::Flush(done) => {
                drop(out.flush());
                let _ = done.try_send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

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

    #[test]
    fn a_stuck_output_drops_lines_and_blocks_nobody() {
        let dropped = IntCounter::new("d", "d").unwrap();
        let (gate, closed) = sync_channel(0);
        let written = Arc::new(Mutex::new(Vec::new()));
        let writer = LineWriter::start(Gated(closed, written.clone()), dropped.clone()).unwrap();
        for _ in 0..LINES + 100 {
            writer.line(b"x\n".to_vec());
        }
        // At least one line is in the thread's hands or in the queue; everything beyond both is dropped.
        assert!(dropped.get() >= 99, "{}", dropped.get());
        assert!(!writer.flush(Duration::from_millis(1)));
        drop(gate);
        // With the gate gone `recv` returns at once.
        while !writer.flush(Duration::from_secs(10)) {}
        let lines = written.lock().unwrap().len() / 2;
        assert_eq!(u64::try_from(lines).unwrap() + dropped.get(), u64::try_from(LINES + 100).unwrap());
    }
}
