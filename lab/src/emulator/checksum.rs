//! The checksum of a UDP datagram, which the kernel leaves wrong in some packets that it cuts from one large send.

/// Writes the checksum of a datagram anew if it is wrong; says whether it was.
///
/// Linux 6.18 is off by one for some ports and lengths when a send with `UDP_SEGMENT` is cut in software, as it is for a TUN device. A
/// network card fills in the checksum itself, and the emulator stands for one. What a link corrupts is corrupted later, and conntrack lets
/// none of it through to a second link.
pub(super) fn mend(packet: &mut [u8]) -> bool {
    let Some((addresses, start)) = datagram(packet) else { return false };
    let pseudo = sum(&packet[addresses]) + u64::from(UDP) + (packet.len() - start) as u64;
    let datagram = &mut packet[start..];
    let written = [datagram[CHECKSUM], datagram[CHECKSUM + 1]];
    if written == [0, 0] || fold(pseudo + sum(datagram)) == u16::MAX {
        return false;
    }
    datagram[CHECKSUM..CHECKSUM + 2].fill(0);
    // Zero would mean that there is none (RFC 768).
    let right = match !fold(pseudo + sum(datagram)) {
        0 => u16::MAX,
        right => right,
    };
    datagram[CHECKSUM..CHECKSUM + 2].copy_from_slice(&right.to_be_bytes());
    true
}

/// Finds the addresses and the start of a UDP datagram that is whole and in one packet.
fn datagram(packet: &[u8]) -> Option<(std::ops::Range<usize>, usize)> {
    let (length, addresses, start) = match packet.first()? >> 4 {
        4 => {
            let header = packet.get(..IPV4_HEADER_BYTES)?;
            let is_fragment = u16::from_be_bytes([header[6], header[7]]) & IPV4_FRAGMENT != 0;
            if header[9] != UDP || is_fragment {
                return None;
            }
            let start = usize::from(header[0] & 0x0f) * 4;
            (usize::from(u16::from_be_bytes([header[2], header[3]])), 12..20, start)
        }
        6 => {
            let header = packet.get(..IPV6_HEADER_BYTES)?;
            if header[6] != UDP {
                return None;
            }
            let length = IPV6_HEADER_BYTES + usize::from(u16::from_be_bytes([header[4], header[5]]));
            (length, 8..IPV6_HEADER_BYTES, IPV6_HEADER_BYTES)
        }
        _ => return None,
    };
    let header = packet.get(start..start + UDP_HEADER_BYTES)?;
    let is_whole = length == packet.len() && usize::from(u16::from_be_bytes([header[4], header[5]])) == length - start;
    is_whole.then_some((addresses, start))
}

/// Adds the words of 16 bits (RFC 1071).
fn sum(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low));
    bytes.chunks(2).map(word).sum()
}

/// Adds the carries to the lower 16 bits.
fn fold(mut sum: u64) -> u16 {
    while sum > u64::from(u16::MAX) {
        sum = (sum & u64::from(u16::MAX)) + (sum >> 16);
    }
    u16::try_from(sum).expect("no carry is left")
}

/// Protocol number of UDP.
const UDP: u8 = 17;

/// Bytes of an IPv4 header without options (RFC 791).
const IPV4_HEADER_BYTES: usize = 20;

/// More fragments follow, or the packet does not begin with the first byte (RFC 791).
const IPV4_FRAGMENT: u16 = 0x3fff;

/// Bytes of an IPv6 header (RFC 8200).
const IPV6_HEADER_BYTES: usize = 40;

/// Bytes of a UDP header (RFC 768).
const UDP_HEADER_BYTES: usize = 8;

/// Where the checksum stands in it.
const CHECKSUM: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    /// A datagram with the payload `hello` from 10.0.0.1:1000 to 10.0.0.2:2000, its checksum worked out by hand.
    fn v4() -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 33, 0, 0, 0x40, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend([0x03, 0xe8, 0x07, 0xd0, 0, 13, 0x9c, 0x47]);
        packet.extend(b"hello");
        packet
    }

    /// The same between fd00::1 and fd00::2.
    fn v6() -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 13, UDP, 64];
        for last in [1, 2] {
            packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        packet.extend([0x03, 0xe8, 0x07, 0xd0, 0, 13, 0xb6, 0x45]);
        packet.extend(b"hello");
        packet
    }

    #[test]
    fn a_right_checksum_and_none_stay() {
        for mut packet in [v4(), v6()] {
            let before = packet.clone();
            assert!(!mend(&mut packet));
            assert_eq!(packet, before);
        }
        let mut packet = v4();
        packet[26..28].fill(0);
        assert!(!mend(&mut packet));
    }

    #[test]
    fn one_that_is_off_by_one_is_mended() {
        for (right, at) in [(v4(), 27), (v6(), 47)] {
            let mut packet = right.clone();
            packet[at] -= 1;
            assert!(mend(&mut packet));
            assert_eq!(packet, right);
        }
    }

    #[test]
    fn what_is_no_whole_datagram_stays() {
        let mut fragment = v4();
        fragment[6] = 0x20;
        let mut other = v4();
        other[9] = 6;
        let mut longer = v4();
        longer.push(0);
        for packet in [fragment, other, longer, v4()[..24].to_vec(), v6()[..44].to_vec(), vec![0x45], vec![]] {
            let mut tried = packet.clone();
            if let Some(byte) = tried.get_mut(27) {
                *byte ^= 1;
            }
            let before = tried.clone();
            assert!(!mend(&mut tried), "{packet:?}");
            assert_eq!(tried, before);
        }
    }
}
