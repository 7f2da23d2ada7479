//! A request body, held once and whole, and its way up to a leader.
//!
//! Owns: the chunks of one body (no copy of what the connection read, unless it came in crumbs), which every attempt sends anew.
//! Must not: read from the network (`ingress` does) or know JSON.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

/// Chunks smaller than this are copied together: a slice of a read buffer keeps the whole buffer alive.
const SMALL_CHUNK: usize = 2 * 1024;

/// Collects a body.
#[derive(Debug, Default)]
pub struct BodyBuilder {
    chunks: SmallVec<[Bytes; 1]>,
    crumbs: BytesMut,
    len: usize,
}

impl BodyBuilder {
    /// Appends what the client sent next.
    pub fn push(&mut self, chunk: Bytes) {
        self.len += chunk.len();
        if chunk.len() < SMALL_CHUNK && !(self.chunks.is_empty() && self.crumbs.is_empty()) {
            self.crumbs.extend_from_slice(&chunk);
        } else {
            self.flush();
            self.chunks.push(chunk);
        }
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// The whole body.
    pub fn finish(mut self) -> RequestBody {
        self.flush();
        RequestBody { chunks: self.chunks.into_iter().collect(), len: self.len }
    }

    fn flush(&mut self) {
        if !self.crumbs.is_empty() {
            self.chunks.push(self.crumbs.split().freeze());
        }
    }
}

/// A whole request body. Cloning shares the bytes.
#[derive(Debug, Clone, Default)]
pub struct RequestBody {
    chunks: Chunks,
    len: usize,
}

/// Most bodies are of one piece: that needs no list.
#[derive(Debug, Clone)]
enum Chunks {
    One(Bytes),
    List(Arc<[Bytes]>),
}

impl Default for Chunks {
    fn default() -> Self {
        Self::One(Bytes::new())
    }
}

impl FromIterator<Bytes> for Chunks {
    fn from_iter<I: IntoIterator<Item = Bytes>>(chunks: I) -> Self {
        let mut chunks: SmallVec<[Bytes; 1]> = chunks.into_iter().collect();
        match chunks.len() {
            0 | 1 => Self::One(chunks.pop().unwrap_or_default()),
            _ => Self::List(chunks.as_slice().into()),
        }
    }
}

impl RequestBody {
    /// A body of one piece.
    pub fn from_bytes(bytes: Bytes) -> Self {
        let len = bytes.len();
        Self { chunks: Chunks::One(bytes), len }
    }

    /// Bytes in all.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// The body in one piece; copies only if it came in several.
    pub fn to_bytes(&self) -> Bytes {
        match &self.chunks {
            Chunks::One(one) => one.clone(),
            Chunks::List(list) => list.concat().into(),
        }
    }

    /// The same body with `span` replaced, sharing all other bytes. A span outside the body is cut to it.
    pub fn replace(&self, span: Range<usize>, with: Bytes) -> Self {
        let mut chunks = Vec::with_capacity(self.chunks().len() + 2);
        self.copy_range(0..span.start, &mut chunks);
        chunks.push(with);
        self.copy_range(span.end..self.len, &mut chunks);
        let len = chunks.iter().map(Bytes::len).sum();
        Self { chunks: chunks.into_iter().collect(), len }
    }

    fn copy_range(&self, range: Range<usize>, out: &mut Vec<Bytes>) {
        let mut at = 0;
        for chunk in self.chunks() {
            let end = at + chunk.len();
            let (from, to) = (range.start.clamp(at, end) - at, range.end.clamp(at, end) - at);
            if from < to {
                out.push(chunk.slice(from..to));
            }
            at = end;
        }
    }

    /// The same bytes; small pieces no longer keep the buffers alive that they were read into.
    pub fn compacted(&self) -> Self {
        let compact = |piece: &Bytes| if piece.len() < SMALL_CHUNK { Bytes::copy_from_slice(piece) } else { piece.clone() };
        Self { chunks: self.chunks().iter().map(compact).collect(), len: self.len }
    }

    /// The pieces, in order.
    pub fn chunks(&self) -> &[Bytes] {
        match &self.chunks {
            Chunks::One(one) => std::slice::from_ref(one),
            Chunks::List(list) => list,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(pieces: &[&'static str]) -> RequestBody {
        let len = pieces.iter().map(|p| p.len()).sum();
        RequestBody { chunks: pieces.iter().map(|p| Bytes::from_static(p.as_bytes())).collect(), len }
    }

    #[test]
    fn replaces_a_span_wherever_the_chunks_are_cut() {
        let text = "abcdefgh";
        for a in 0..=text.len() {
            for b in a..=text.len() {
                let pieces: Vec<&'static str> = [&text[..a], &text[a..b], &text[b..]].into_iter().filter(|p| !p.is_empty()).collect();
                let body = body(&pieces);
                for start in 0..text.len() {
                    for end in start..=text.len() {
                        let got = body.replace(start..end, Bytes::from_static(b"XYZ"));
                        let want = format!("{}XYZ{}", &text[..start], &text[end..]);
                        assert_eq!(got.to_bytes(), want.as_bytes(), "{pieces:?} {start}..{end}");
                        assert_eq!(got.bytes(), want.len());
                    }
                }
            }
        }
    }

    #[test]
    fn a_compacted_body_is_the_same_and_shares_only_what_is_large() {
        let read = Bytes::from(vec![b'x'; 3 * SMALL_CHUNK]);
        let body = RequestBody { chunks: [read.slice(0..9), read.slice(9..)].into_iter().collect(), len: read.len() };
        let compacted = body.compacted();
        assert_eq!(compacted.to_bytes(), read);
        assert_ne!(compacted.chunks()[0].as_ptr(), body.chunks()[0].as_ptr());
        assert_eq!(compacted.chunks()[1].as_ptr(), body.chunks()[1].as_ptr());
    }

    #[test]
    fn crumbs_are_gathered_and_large_chunks_are_shared() {
        let mut builder = BodyBuilder::default();
        let large = Bytes::from(vec![b'x'; 10_000]);
        builder.push(large.clone());
        for _ in 0..1000 {
            builder.push(Bytes::from_static(b"y"));
        }
        builder.push(large.clone());
        assert_eq!(builder.bytes(), 21_000);
        let body = builder.finish();
        assert_eq!(body.chunks().len(), 3);
        assert_eq!(body.chunks()[0].as_ptr(), large.as_ptr());
        assert_eq!(body.to_bytes().len(), 21_000);
    }
}
