//! Reproducible random choices: the same seed gives the same ones.

/// A generator of pseudo-random numbers (`SplitMix64`).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Returns the generator of one cycle, which does not depend on the order in which cycles run.
    pub(crate) fn new(seed: u64, number: u32) -> Self {
        let mut random = Self(seed);
        random.0 = random.next() ^ u64::from(number);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.next() % u64::from(end)).expect("the rest is smaller than the divisor")
    }

    /// Returns one of the choices, of which there must be at least one.
    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        let count = u32::try_from(choices.len()).expect("a handful of choices");
        choices[self.below(count) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_follow_from_seed_and_cycle() {
        let row = |seed, number| {
            let mut random = Random::new(seed, number);
            [0; 8].map(|_| random.below(1000))
        };
        assert_eq!(row(7, 3), row(7, 3));
        assert_ne!(row(7, 3), row(7, 4));
        assert_ne!(row(7, 3), row(8, 3));
        let mut random = Random::new(1, 1);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[random.one_of(&[0, 1, 2, 3, 4])] = true;
        }
        assert_eq!(seen, [true; 5]);
    }
}
