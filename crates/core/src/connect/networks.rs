//! What was learned on the networks that a device comes back to.

use std::collections::VecDeque;

use super::Records;
use crate::request::{LABEL_CHARS_MAX, LABELS_MAX};

/// The records of the networks that the device is not on, by their labels; those of the network it is on are their owner's.
#[derive(Clone, Debug, Default)]
pub struct OtherNetworks {
    /// That of the network the device is on; empty if nobody has named it.
    label: String,
    /// The one left last comes last.
    left: VecDeque<(String, Records)>,
}

impl OtherNetworks {
    /// Takes in the label of the network that the device is on, and puts what is known of it in the place of `records`.
    ///
    /// An empty label stands for a network that nobody has named: `records` go on as they are, and what is learned from here on counts for
    /// no other. Of a label the first [`LABEL_CHARS_MAX`] characters count; the [`LABELS_MAX`] networks left last are kept.
    pub fn handle_network(&mut self, label: &str, records: &mut Records) {
        let label: String = label.chars().take(LABEL_CHARS_MAX).collect();
        if label == self.label {
            return;
        }
        let place = self.left.iter().position(|(left, _)| *left == label);
        let known = place.and_then(|place| self.left.remove(place)).map(|(_, known)| known);
        let next = if label.is_empty() { records.clone() } else { known.unwrap_or_default() };
        let before = std::mem::replace(records, next);
        let left = std::mem::replace(&mut self.label, label);
        if !left.is_empty() {
            if self.left.len() >= LABELS_MAX {
                self.left.pop_front();
            }
            self.left.push_back((left, before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CarrierKind, Time,
        connect::{Candidate, FailReason, Score},
    };

    fn failed(records: &mut Records, port: u16) {
        let candidate = Candidate { address: ([192, 0, 2, 1], port).into(), carrier: CarrierKind::Tls };
        records.observe(candidate, Score::Failure(FailReason::Refused), Time::ZERO);
    }

    #[test]
    fn each_label_has_its_records_and_a_network_without_one_goes_on_with_a_copy() {
        let (mut others, mut records) = (OtherNetworks::default(), Records::new());
        failed(&mut records, 1);
        others.handle_network("home", &mut records);
        assert!(records.is_empty(), "what was learned before counts for a network that has no name");
        failed(&mut records, 2);
        failed(&mut records, 3);
        others.handle_network("home", &mut records);
        assert_eq!(records.len(), 2);
        others.handle_network("", &mut records);
        failed(&mut records, 4);
        assert_eq!(records.len(), 3);
        others.handle_network("home", &mut records);
        assert_eq!(records.len(), 2);
    }

    #[test]
    fn the_networks_left_last_are_kept() {
        let (mut others, mut records) = (OtherNetworks::default(), Records::new());
        for number in 0..LABELS_MAX + 2 {
            others.handle_network(&number.to_string(), &mut records);
            failed(&mut records, 1);
        }
        others.handle_network("1", &mut records);
        assert_eq!(records.len(), 1);
        others.handle_network("0", &mut records);
        assert!(records.is_empty());
    }
}
