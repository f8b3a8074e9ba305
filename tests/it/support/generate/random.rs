//! A small seeded random number generator. The same seed gives the same numbers on every platform:
//! integers only, no clock, no addresses.

/// SplitMix64: one addition and two multiplications for each number.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

/// A quantile table: (thousandths, value), ascending, from 0 to 1,000.
pub(crate) type Quantiles = &'static [(u32, u32)];

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator for one part of the work, so that a change of that part leaves the others as
    /// they are.
    pub(crate) fn for_part(seed: u64, salt: u64) -> Self {
        let mut parent = Self(seed ^ salt.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        Self(parent.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is at least one.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// A number from `low` to `high`, inclusive.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True with a chance of `percent`.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent as usize
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, among: &[&'a T]) -> &'a T {
        among[self.below(among.len())]
    }

    pub(crate) fn weighted<T: Copy>(&mut self, among: &[(u32, T)]) -> T {
        let total: u32 = among.iter().map(|(weight, _)| weight).sum();
        let mut left = self.below(total as usize) as u32;
        for &(weight, value) in among {
            if left < weight {
                return value;
            }
            left -= weight;
        }
        among[among.len() - 1].1
    }

    /// A value distributed by the table, interpolated between two rows.
    pub(crate) fn sample_quantiles(&mut self, table: Quantiles) -> usize {
        let at = self.below(1_000_000) as u64;
        for pair in table.windows(2) {
            let (from, to) = (u64::from(pair[0].0) * 1000, u64::from(pair[1].0) * 1000);
            if at < to {
                let (low, high) = (u64::from(pair[0].1), u64::from(pair[1].1));
                return (low + (high - low) * (at - from) / (to - from)) as usize;
            }
        }
        table.last().map_or(0, |row| row.1 as usize)
    }

    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at + 1));
        }
    }

    /// `length` characters of the alphabet.
    pub(crate) fn letters(&mut self, length: usize, alphabet: &[u8]) -> String {
        (0..length)
            .map(|_| char::from(alphabet[self.below(alphabet.len())]))
            .collect()
    }
}
