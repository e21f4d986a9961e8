//! Follows the frames of an HTTP/3 stream, without keeping a byte.

/// Where on a stream the next byte belongs.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    place: Place,
    frame_bytes_max: u64,
}

/// A frame that is longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("frame of {bytes} bytes is longer than {bytes_max}")]
pub(super) struct Oversized {
    pub(super) bytes: u64,
    pub(super) bytes_max: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// On a stream that has no frames.
    Free,
    /// In the type of a frame; what has come of it.
    FrameType(Varint),
    /// In the length of a frame.
    Length { is_data: bool, length: Varint },
    /// In the payload of a frame.
    Payload { left: u64 },
    /// In the type of a one-way stream.
    StreamType(Varint),
}

/// A variable-length integer that comes byte by byte (RFC 9000 section 16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Varint {
    value: u64,
    /// Bytes that are still to come; meaningful once the first came.
    left: u32,
    is_begun: bool,
}

impl Watch {
    /// Watches a stream of a request and its answer.
    pub(super) const fn exchange(frame_bytes_max: u64) -> Self {
        Self { place: Place::FrameType(Varint::NONE), frame_bytes_max }
    }

    /// Watches a one-way stream, which says first what it is.
    pub(super) const fn one_way(frame_bytes_max: u64) -> Self {
        Self { place: Place::StreamType(Varint::NONE), frame_bytes_max }
    }

    /// Takes in the next bytes.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Oversized> {
        while let Some((&first, rest)) = bytes.split_first() {
            self.place = match self.place {
                Place::Free => return Ok(()),
                Place::FrameType(kind) => match kind.push(first) {
                    Ok(kind) => Place::Length { is_data: kind == DATA, length: Varint::NONE },
                    Err(kind) => Place::FrameType(kind),
                },
                Place::Length { is_data, length } => match length.push(first) {
                    Ok(bytes) if !is_data && bytes > self.frame_bytes_max => {
                        return Err(Oversized { bytes, bytes_max: self.frame_bytes_max });
                    }
                    Ok(0) => Place::FrameType(Varint::NONE),
                    Ok(left) => Place::Payload { left },
                    Err(length) => Place::Length { is_data, length },
                },
                Place::Payload { left } => {
                    let taken = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                    bytes = &bytes[taken..];
                    self.place = match left - taken as u64 {
                        0 => Place::FrameType(Varint::NONE),
                        left => Place::Payload { left },
                    };
                    continue;
                }
                Place::StreamType(kind) => match kind.push(first) {
                    Ok(CONTROL) => Place::FrameType(Varint::NONE),
                    Ok(_) => Place::Free,
                    Err(kind) => Place::StreamType(kind),
                },
            };
            bytes = rest;
        }
        Ok(())
    }

    /// Says whether the stream can end here without cutting a frame.
    pub(super) fn is_between_frames(&self) -> bool {
        match self.place {
            Place::Free => true,
            Place::FrameType(kind) | Place::StreamType(kind) => !kind.is_begun,
            Place::Length { .. } | Place::Payload { .. } => false,
        }
    }
}

impl Varint {
    const NONE: Self = Self { value: 0, left: 0, is_begun: false };

    /// Takes the next byte; gives the number once it is whole.
    fn push(self, byte: u8) -> Result<u64, Self> {
        let next = if self.is_begun {
            Self { value: self.value << 8 | u64::from(byte), left: self.left - 1, is_begun: true }
        } else {
            Self { value: u64::from(byte & 0x3f), left: (1 << (byte >> 6)) - 1, is_begun: true }
        };
        if next.left == 0 { Ok(next.value) } else { Err(next) }
    }
}

/// The DATA frame, which is passed on as it comes (RFC 9114 section 7.2.1).
const DATA: u64 = 0;

/// The control stream (RFC 9114 section 6.2.1).
const CONTROL: u64 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    /// HEADERS of three bytes, DATA of 300 with a length of two bytes, an unknown frame without payload.
    fn exchange() -> Vec<u8> {
        let mut bytes = vec![1, 3, 7, 7, 7, 0, 0x41, 0x2c];
        bytes.extend([9; 300]);
        bytes.extend([0x40, 0x21, 0]);
        bytes
    }

    #[test]
    fn however_the_bytes_are_cut_the_ends_of_frames_are_the_same() {
        let bytes = exchange();
        let ends = [0, 5, 308, 311];
        for piece in [1, 2, 3, 7, 400] {
            let mut watch = Watch::exchange(16);
            for (number, chunk) in bytes.chunks(piece).enumerate() {
                watch.feed(chunk).unwrap();
                let place = (number * piece + chunk.len()).min(bytes.len());
                assert_eq!(watch.is_between_frames(), ends.contains(&place), "after {place} bytes, {piece} at once");
            }
        }
    }

    #[test]
    fn a_long_frame_is_refused_by_its_length_unless_it_is_data() {
        let mut watch = Watch::exchange(100);
        assert_eq!(watch.feed(&[1, 0x40, 101]), Err(Oversized { bytes: 101, bytes_max: 100 }));
        // A grease frame of the greatest length there is.
        let mut watch = Watch::exchange(100);
        assert!(watch.feed(&[0x21, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).is_err());
        let mut watch = Watch::exchange(100);
        watch.feed(&[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]).unwrap();
        assert!(!watch.is_between_frames());
    }

    #[test]
    fn of_the_one_way_streams_only_control_has_frames() {
        let mut control = Watch::one_way(100);
        control.feed(&[0, 4, 2, 1, 1]).unwrap();
        assert!(control.is_between_frames());
        assert!(control.feed(&[4, 0x41, 0]).is_err());
        let mut encoder = Watch::one_way(100);
        encoder.feed(&[2, 1, 0x41, 0, 0, 0]).unwrap();
        assert!(encoder.is_between_frames());
    }
}
