//! The encoder's half of the dictionary: what stands in the peer's slots, and which of them may be used or replaced.

use super::{DICTIONARY_BYTES_MAX, ENTRY_BYTES_MAX, Mode, SLOTS_COUNT, UNACKNOWLEDGED_BLOCKS_MAX, entry_size, table};

/// The slots of one direction of a link, as the encoder knows them.
///
/// Every set of slots is a bit mask, slot 0 lowest.
#[derive(Debug)]
pub(super) struct Dictionary {
    mode: Mode,
    /// Where the search for the next slot to fill begins.
    cursor: usize,
    /// Slots referenced since the cursor last passed them: they are spared once.
    touched: u64,
    /// Slots that blocks may reference.
    ready: u64,
    /// Slots that a forgotten block named: the peer may still read that block, so they are never filled again.
    pinned: u64,
    /// The sum of all [`Slot::charge`].
    bytes: usize,
    /// What the slots hold, by hash of the name and by hash of name and value. They only narrow the search.
    name_hashes: [u32; SLOTS_COUNT],
    field_hashes: [u32; SLOTS_COUNT],
    slots: Vec<Slot>,
    /// The blocks that named a slot and were not acknowledged yet; only on unordered carriers.
    unacknowledged: Vec<BlockUse>,
    /// Hashes of the latest fields that enter at second sight.
    seen: [u32; SEEN_COUNT],
    seen_next: usize,
}

/// What one block does with the dictionary.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockUse {
    block: u64,
    /// The slots it fills.
    inserted: u64,
    /// The slots it references.
    referenced: u64,
    /// The first slot it fills.
    first: Option<usize>,
    /// How many slots it fills, one after the other.
    count: usize,
}

/// A field to look up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    pub(super) name: &'a [u8],
    /// The [`hash`](table::hash) of the name.
    pub(super) name_hash: u32,
    pub(super) value: &'a [u8],
}

/// How the dictionary knows a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// Not at all.
    Absent,
    /// It stands in a slot that this block may not reference yet.
    Pending,
    /// It stands in this slot.
    Ready(usize),
}

#[derive(Debug)]
struct Slot {
    /// The name, then the value.
    field: Box<[u8]>,
    name_len: u16,
    /// What the peer may have to hold for this slot: the larger of the old entry and the new until the new one is known
    /// to be there.
    charge: u16,
}

impl Dictionary {
    pub(super) fn new(mode: Mode) -> Self {
        Self {
            mode,
            cursor: 0,
            touched: 0,
            ready: 0,
            pinned: 0,
            bytes: 0,
            name_hashes: [0; SLOTS_COUNT],
            field_hashes: [0; SLOTS_COUNT],
            slots: Vec::new(),
            unacknowledged: Vec::new(),
            seen: [0; SEEN_COUNT],
            seen_next: 0,
        }
    }

    /// Begins a block, none if it must do without the dictionary.
    pub(super) fn begin(&self, block: u64) -> Option<BlockUse> {
        let may_use = match self.mode {
            Mode::Ordered => true,
            Mode::Unordered => {
                self.unacknowledged.len() < UNACKNOWLEDGED_BLOCKS_MAX
                    && self.unacknowledged.iter().all(|other| other.block != block)
            }
        };
        may_use.then(|| BlockUse { block, ..BlockUse::default() })
    }

    /// Ends a block: what it used stays as it is until [`acknowledge`](Self::acknowledge) or [`forget`](Self::forget).
    pub(super) fn end(&mut self, usage: BlockUse) {
        if self.mode == Mode::Unordered && usage.slots() != 0 {
            self.unacknowledged.push(usage);
        }
    }

    /// Looks up a field with this [`field_hash`](Key::field_hash) and notes the reference if there is one.
    pub(super) fn find(&mut self, key: Key<'_>, hash: u32, usage: &mut BlockUse) -> Lookup {
        let mut lookup = Lookup::Absent;
        for (slot, entry) in self.slots.iter().enumerate() {
            if self.field_hashes[slot] != hash || !entry.is(key) {
                continue;
            }
            if self.ready & 1 << slot != 0 {
                self.touched |= 1 << slot;
                usage.referenced |= 1 << slot;
                return Lookup::Ready(slot);
            }
            lookup = Lookup::Pending;
        }
        lookup
    }

    /// Finds a slot whose name is that of `key` and notes the reference.
    pub(super) fn find_name(&mut self, key: Key<'_>, usage: &mut BlockUse) -> Option<usize> {
        let slot = self.slots.iter().enumerate().position(|(slot, entry)| {
            self.name_hashes[slot] == key.name_hash && self.ready & 1 << slot != 0 && entry.name() == key.name
        })?;
        usage.referenced |= 1 << slot;
        Some(slot)
    }

    /// Says whether a field that enters at second sight was seen lately, and remembers its hash.
    pub(super) fn was_seen(&mut self, hash: u32) -> bool {
        let seen = self.seen.contains(&hash);
        if !seen {
            self.seen[self.seen_next] = hash;
            self.seen_next = (self.seen_next + 1) % SEEN_COUNT;
        }
        seen
    }

    /// Puts a field into the slot that the block fills next; says whether there is one.
    pub(super) fn insert(&mut self, key: Key<'_>, hash: u32, usage: &mut BlockUse) -> bool {
        let size = entry_size(key.name.len(), key.value.len());
        if size > ENTRY_BYTES_MAX {
            return false;
        }
        let Some(slot) = self.next_slot(usage) else { return false };
        let old = self.slots.get(slot).map_or(0, |entry| usize::from(entry.charge));
        let charge = match self.mode {
            Mode::Ordered => size,
            Mode::Unordered => size.max(old),
        };
        if self.bytes - old + charge > DICTIONARY_BYTES_MAX {
            return false;
        }
        let entry = Slot {
            field: [key.name, key.value].concat().into_boxed_slice(),
            name_len: key.name.len() as u16,
            charge: charge as u16,
        };
        if slot == self.slots.len() {
            self.slots.push(entry);
        } else {
            self.slots[slot] = entry;
        }
        self.bytes = self.bytes - old + charge;
        self.name_hashes[slot] = key.name_hash;
        self.field_hashes[slot] = hash;
        self.touched &= !(1 << slot);
        match self.mode {
            Mode::Ordered => self.ready |= 1 << slot,
            Mode::Unordered => self.ready &= !(1 << slot),
        }
        self.cursor = (slot + 1) % SLOTS_COUNT;
        usage.first = usage.first.or(Some(slot));
        usage.count += 1;
        usage.inserted |= 1 << slot;
        true
    }

    /// The peer has read this block: its slots are there.
    pub(super) fn acknowledge(&mut self, block: u64) {
        let Some(usage) = self.take(block) else { return };
        self.ready |= usage.inserted;
        for slot in slots_of(usage.inserted) {
            let entry = &mut self.slots[slot];
            let size = entry_size(entry.name().len(), entry.field.len() - entry.name().len());
            self.bytes -= usize::from(entry.charge) - size;
            entry.charge = size as u16;
        }
    }

    /// No acknowledgement of this block will come, and nobody knows whether the peer reads it.
    pub(super) fn forget(&mut self, block: u64) {
        let Some(usage) = self.take(block) else { return };
        self.pinned |= usage.slots();
        // Nothing may ever be looked up there again.
        for slot in slots_of(usage.inserted) {
            let entry = &mut self.slots[slot];
            entry.field = Box::default();
            entry.name_len = 0;
        }
    }

    fn take(&mut self, block: u64) -> Option<BlockUse> {
        let at = self.unacknowledged.iter().position(|usage| usage.block == block)?;
        Some(self.unacknowledged.swap_remove(at))
    }

    /// Chooses the slot to fill next: for the first of a block the next one that was not referenced lately, then the
    /// ones behind it for as long as they are free too.
    fn next_slot(&mut self, usage: &BlockUse) -> Option<usize> {
        let busy = match self.mode {
            Mode::Ordered => 0,
            Mode::Unordered => self.unacknowledged.iter().fold(self.pinned | usage.slots(), |busy, u| busy | u.slots()),
        };
        if let Some(first) = usage.first {
            let slot = (first + usage.count) % SLOTS_COUNT;
            let free = (busy | self.touched | usage.inserted) & 1 << slot == 0;
            return free.then_some(slot);
        }
        for step in 0..2 * SLOTS_COUNT {
            let slot = (self.cursor + step) % SLOTS_COUNT;
            if (busy | self.touched) & 1 << slot == 0 {
                return Some(slot);
            }
            self.touched &= !(1 << slot);
        }
        None
    }
}

impl BlockUse {
    /// The first slot the block fills.
    pub(super) fn first(&self) -> Option<usize> {
        self.first
    }

    fn slots(&self) -> u64 {
        self.inserted | self.referenced
    }
}

impl Key<'_> {
    /// Hashes name and value, eight bytes at a time: values are long and come with every message.
    pub(super) fn field_hash(self) -> u32 {
        let mut hash = u64::from(self.name_hash);
        let (words, rest) = self.value.as_chunks::<8>();
        for &word in words {
            hash = (hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(HASH_FACTOR);
        }
        hash = (hash.rotate_left(5) ^ u64::from(table::hash(rest))).wrapping_mul(HASH_FACTOR);
        (hash >> 32) as u32
    }
}

impl Slot {
    fn name(&self) -> &[u8] {
        &self.field[..usize::from(self.name_len)]
    }

    fn is(&self, key: Key<'_>) -> bool {
        let (name, value) = self.field.split_at(usize::from(self.name_len));
        name == key.name && value == key.value
    }
}

/// Walks through the slots of a mask.
fn slots_of(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = mask.trailing_zeros() as usize;
        mask &= mask.checked_sub(1)?;
        Some(slot)
    })
}

/// How many of the latest fields that enter at second sight are remembered: the paths of a few screens of an app.
const SEEN_COUNT: usize = 32;

/// 2^64 divided by the golden ratio, made odd (Knuth, The Art of Computer Programming, volume 3, section 6.4).
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
