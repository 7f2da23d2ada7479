//! A tiny random generator whose numbers never change between versions of any package.
//!
//! Load clients and engines of different builds must agree on every character, so the generator is our own. It must not
//! be used where an attacker profits from guessing.

/// A splitmix64 generator.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Starts the sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, uniform over all of `u64`.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        finish(self.0)
    }

    /// A number below `n`; 0 for `n` of 0. The bias is below 2^-32 for the small `n` used here.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 {
            return 0;
        }
        usize::try_from(self.next_u64() % n as u64).unwrap_or(0)
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A float in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        // 53 bits fit a double exactly.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// One element of `items`, which must not be empty.
    pub fn pick<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items.get(self.below(items.len())).copied().unwrap_or("")
    }
}

/// Hashes bytes, eight at a time: prompts of megabytes must not cost milliseconds.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut state = 0x51_7c_c1_b7_27_22_0a_95 ^ (bytes.len() as u64);
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        state = mix(state, u64::from_le_bytes(word));
    }
    let rest = chunks.remainder();
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    mix(state, u64::from_le_bytes(word))
}

/// Folds `value` into `state`.
pub fn mix(state: u64, value: u64) -> u64 {
    finish((state.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn finish(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_repeat_and_differ_by_seed() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            (0..8).map(|_| rng.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn hash_sees_every_byte_and_the_length() {
        assert_ne!(hash(b"abcdefgh"), hash(b"abcdefgi"));
        assert_ne!(hash(b"abcdefgh"), hash(b"abcdefgh\0"));
        assert_ne!(hash(b""), hash(b"\0"));
    }
}
