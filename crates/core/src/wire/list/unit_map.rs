//! Which unit owns which user.

use std::collections::BTreeMap;

/// Which unit owns which user: ranges of slots, and users who are elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitMap {
    /// When the map last changed, milliseconds since the Unix epoch.
    pub epoch_ms: u64,
    /// Ranges of slots; the first that holds a slot counts.
    pub ranges: Vec<UnitRange>,
    /// Units of single users, by [`user_hash`]: the list names nobody.
    pub overrides: BTreeMap<u64, String>,
}

/// The slots of one unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitRange {
    /// The first slot.
    pub first: u16,
    /// The last slot, included.
    pub last: u16,
    /// The unit.
    pub unit: String,
}

impl UnitMap {
    /// Returns the unit that owns a user, `None` where the map says nothing of them.
    #[must_use]
    pub fn unit_of(&self, user: &str) -> Option<&str> {
        let hash = user_hash(user);
        if let Some(unit) = self.overrides.get(&hash) {
            return Some(unit);
        }
        let slot = slot(hash);
        let range = self.ranges.iter().find(|range| (range.first..=range.last).contains(&slot));
        range.map(|range| range.unit.as_str())
    }
}

/// Hashes the name of a user: FNV-1a of 64 bits over its UTF-8 bytes (draft-eastlake-fnv).
#[must_use]
pub fn user_hash(user: &str) -> u64 {
    user.bytes().fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

/// Returns the slot of a hash, 0 to 65,535: its upper 16 bits once they were mixed as MurmurHash3 finishes a hash (`fmix64`), for
/// those of FNV alone are uneven where users are numbered.
#[must_use]
pub const fn slot(hash: u64) -> u16 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    ((hash ^ (hash >> 33)) >> 48) as u16
}

/// Offset basis of FNV-1a, 64 bits (draft-eastlake-fnv section 5).
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// Prime of FNV-1a, 64 bits (draft-eastlake-fnv section 5).
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // Vectors of draft-eastlake-fnv.
        assert_eq!(user_hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(user_hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(user_hash("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn numbered_users_spread_evenly_over_the_slots() {
        let mut eighths = [0_u32; 8];
        for user in 0..80_000 {
            eighths[usize::from(slot(user_hash(&format!("user-{user}"))) >> 13)] += 1;
        }
        for count in eighths {
            assert!((9_500..10_500).contains(&count), "{eighths:?}");
        }
    }

    #[test]
    fn an_override_wins_over_the_range_and_a_hole_has_no_unit() {
        let half = |first, last, unit: &str| UnitRange { first, last, unit: unit.into() };
        let mut map =
            UnitMap { ranges: vec![half(0, 0x7fff, "north"), half(0x8000, u16::MAX, "south")], ..UnitMap::default() };
        let unit = if slot(user_hash("alice")) < 0x8000 { "north" } else { "south" };
        assert_eq!(map.unit_of("alice"), Some(unit));
        map.overrides.insert(user_hash("alice"), "west".into());
        assert_eq!(map.unit_of("alice"), Some("west"));
        map.ranges.clear();
        assert_eq!(map.unit_of("bob"), None);
    }
}
