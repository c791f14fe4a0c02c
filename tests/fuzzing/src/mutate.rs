//! Changes of inputs by dice that fall the same way in every run.

/// Dice from a seed.
#[derive(Clone, Copy, Debug)]
pub struct Dice(u64);

/// Numbers that lie, in the sizes that lengths have.
const LIES: [&[u8]; 8] = [
    &[0x7f, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xff],
    &[0x80, 0x00, 0x00, 0x00],
    &[0x7f, 0xff],
    &[0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0x00],
];
/// Longest input: what is beyond teaches nothing new.
const INPUT_BYTES_MAX: usize = 64 << 10;

impl Dice {
    /// Dice that fall the same way for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number below `sides`; 0 where there is none.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let sides = u64::try_from(sides.max(1)).unwrap_or(1);
        usize::try_from(self.0 % sides).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.roll(256)).unwrap_or(0)
    }

    /// An input like one of the seeds.
    pub fn like(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let empty = Vec::new();
        let place = self.roll(seeds.len());
        let mut input = seeds.get(place).unwrap_or(&empty).clone();
        for _ in 0..=self.roll(4) {
            self.change(&mut input, seeds);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.roll(input.len() + 1);
        match self.roll(7) {
            0 => input.truncate(at),
            1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.roll(8);
                }
            }
            2 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = self.byte();
                }
            }
            3 => {
                let lie = LIES[self.roll(LIES.len())];
                for (place, byte) in input.iter_mut().skip(at).zip(lie) {
                    *place = *byte;
                }
            }
            4 => {
                let more: Vec<u8> = (0..=self.roll(16)).map(|_| self.byte()).collect();
                input.splice(at..at, more);
            }
            5 => {
                let end = (at + 1 + self.roll(32)).min(input.len());
                input.drain(at.min(end)..end);
            }
            // The front of one and the back of another.
            _ => {
                let place = self.roll(seeds.len());
                let other = seeds.get(place).map_or(&[][..], Vec::as_slice);
                let from = self.roll(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
}
