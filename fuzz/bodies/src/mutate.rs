//! Changes inputs a little, or a lot.

use rand_core::Rng;
use rand_pcg::Pcg32;
use ropeway_core::wire::{Flags, Frame, Kind, VARINT_MAX, frame, varint};

use crate::Shape;

/// Makes new inputs from old ones; the same seed makes the same ones.
pub(crate) struct Mutator {
    random: Pcg32,
    shape: Shape,
    /// Pieces worth inserting.
    dictionary: Vec<Vec<u8>>,
}

impl Mutator {
    pub(crate) fn new(seed: u64, shape: Shape, seeds: &[Vec<u8>]) -> Self {
        Self { random: Pcg32::new(seed, 0xf022), shape, dictionary: dictionary(shape, seeds) }
    }

    /// Returns a number below `bound`, zero if that is zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { self.random.next_u64() as usize % bound }
    }

    /// Makes an input out of one or two of the corpus.
    pub(crate) fn next(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let at = self.below(corpus.len());
        let mut input = corpus.get(at).cloned().unwrap_or_default();
        if self.below(6) == 0 {
            let other = self.below(corpus.len());
            self.splice(&mut input, &corpus[other]);
        }
        for _ in 0..=self.below(STACKED_MAX) {
            if self.below(2) == 0 && self.shape == Shape::Frames {
                self.mutate_frames(&mut input);
            } else {
                self.mutate_bytes(&mut input);
            }
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn splice(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        input.truncate(self.below(input.len() + 1));
        input.extend_from_slice(&other[self.below(other.len() + 1)..]);
    }

    fn mutate_bytes(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len());
        match self.below(10) {
            0 if !input.is_empty() => input[at] ^= 1 << self.below(8),
            1 if !input.is_empty() => input[at] = INTERESTING[self.below(INTERESTING.len())],
            2 if !input.is_empty() => input[at] = input[at].wrapping_add(1 + self.below(16) as u8).wrapping_sub(8),
            3 => input.truncate(at),
            4 => drop(input.drain(at..self.end(at, input.len()))),
            5 => {
                let piece = input[at..self.end(at, input.len())].to_vec();
                let to = self.below(input.len() + 1);
                input.splice(to..to, piece);
            }
            6 => {
                let piece: Vec<u8> = (0..=self.below(8)).map(|_| self.random.next_u32() as u8).collect();
                input.splice(at..at, piece);
            }
            7 => self.edit_length(input, at),
            8 if !self.dictionary.is_empty() => {
                let word = self.below(self.dictionary.len());
                let end = (at + self.dictionary[word].len()).min(input.len());
                input.splice(at..end, self.dictionary[word].iter().copied());
            }
            _ if !self.dictionary.is_empty() => {
                let word = self.below(self.dictionary.len());
                input.splice(at..at, self.dictionary[word].iter().copied());
            }
            _ => input.push(self.random.next_u32() as u8),
        }
    }

    /// Writes another number where a varint may stand.
    fn edit_length(&mut self, input: &mut Vec<u8>, at: usize) {
        let Some((value, length)) = varint::read(&input[at..]) else { return };
        let value = match self.below(5) {
            0 => value.saturating_sub(1),
            1 => value.saturating_add(1),
            2 => value.saturating_mul(2),
            3 => 1 << self.below(62),
            _ => VARINT_MAX,
        };
        let mut written = Vec::new();
        varint::write(value.min(VARINT_MAX), &mut written);
        input.splice(at..at + length, written);
    }

    /// Changes the order, number or parts of frames and leaves the rest of the stream whole.
    fn mutate_frames(&mut self, input: &mut Vec<u8>) {
        let (mut frames, rest) = split(input);
        let at = self.below(frames.len());
        let other = self.below(frames.len());
        let Some(frame) = frames.get_mut(at) else { return self.mutate_bytes(input) };
        match self.below(9) {
            0 => drop(frames.remove(at)),
            1 => {
                let copy = frame.clone();
                frames.insert(other, copy);
            }
            2 => frames.swap(at, other),
            3 => frame.kind = Kind::ALL[self.below(Kind::ALL.len())],
            4 => frame.flags = Flags(self.random.next_u32() as u8 & 3),
            5 => frame.channel = self.below(CHANNELS_USUAL) as u64,
            6 => frames.truncate(at),
            _ => {
                let mut payload = frame.payload.to_vec();
                self.mutate_bytes(&mut payload);
                frame.payload = payload.into();
            }
        }
        input.clear();
        frames.iter().for_each(|frame| frame.encode(input));
        input.extend_from_slice(&rest);
    }

    /// Returns an end for a piece that begins at `at`: most pieces are short.
    fn end(&mut self, at: usize, length: usize) -> usize {
        let most = if self.below(4) == 0 { length } else { PIECE_USUAL_BYTES };
        (at + 1 + self.below(most)).min(length)
    }
}

/// Splits a stream into its frames and what follows the last.
pub(crate) fn split(input: &[u8]) -> (Vec<Frame>, Vec<u8>) {
    let (mut frames, mut rest) = (Vec::new(), input);
    while let Ok(Some((Some(frame), length))) = frame::decode(rest, INPUT_BYTES_MAX) {
        frames.push(frame.to_owned());
        rest = &rest[length..];
    }
    (frames, rest.to_vec())
}

fn dictionary(shape: Shape, seeds: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = match shape {
        Shape::Bytes => seeds.to_vec(),
        Shape::Frames => seeds
            .iter()
            .flat_map(|seed| split(seed).0)
            .flat_map(|frame| {
                let mut whole = Vec::new();
                frame.encode(&mut whole);
                [whole, frame.payload.to_vec()]
            })
            .collect(),
        Shape::Text => {
            let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
            let words = seeds.iter().flat_map(|seed| seed.split(move |byte| !is_word(byte)));
            words.map(<[u8]>::to_vec).chain(SIGNS.map(|sign| sign.as_bytes().to_vec())).collect()
        }
    };
    words.sort();
    words.dedup();
    words.retain(|word| !word.is_empty());
    words
}

/// Most bytes of an input: a few hundred frames, and quick to run.
pub(crate) const INPUT_BYTES_MAX: usize = 16 * 1024;

/// Most mutations on top of each other, as many as libFuzzer's default `-mutate_depth` and a few.
const STACKED_MAX: usize = 8;

/// Channels that frames are moved to.
const CHANNELS_USUAL: usize = 6;

/// Length of most pieces that are removed or repeated.
const PIECE_USUAL_BYTES: usize = 16;

/// Bytes at the edges of varints, of HPACK's prefixes and of signs.
const INTERESTING: [u8; 16] = [0, 1, 2, 0x0f, 0x10, 0x1f, 0x20, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xbf, 0xc0, 0xfe, 0xff];

/// What texts are held together by.
const SIGNS: [&str; 20] = [
    "[", "]", "[[", "]]", "{", "}", "=", ".", ",", "\"", "\"\"\"", "'", "\n", "\\u0000", "#", "-1", "1e999", "true",
    "\u{feff}", "é",
];
