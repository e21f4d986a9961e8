//! Frames arrive whole, unchanged and in order, however they were cut on the way.

use std::collections::BTreeMap;

use ropeway_core::wire::{Flags, Frame, Kind};

use crate::rig::{ALL, End, Rig, frame, pattern};

/// Every size up to 600, the bounds of the length's forms and of a TLS record, and a spread of others up to the largest.
fn sizes() -> Vec<usize> {
    let bounds = [16_318, 16_352, 16_383, 16_384, 16_385, 16_400, 32_768, 65_535, 65_536];
    (0..600).chain((600..65_536).step_by(1_021)).chain(bounds).collect()
}

/// Bodies of every size on three channels in turn, with a heartbeat after each.
fn conversation(opening: Kind) -> Vec<Frame> {
    let mut frames: Vec<Frame> = CHANNELS.map(|channel| frame(opening, channel, pattern(1, 40), false)).into();
    for (index, size) in sizes().into_iter().enumerate() {
        frames.push(frame(Kind::Body, CHANNELS[index % CHANNELS.len()], pattern(index, size), false));
        frames.push(frame(Kind::Ping, 0, pattern(index, 8), false));
    }
    frames.extend(CHANNELS.map(|channel| frame(Kind::Body, channel, Vec::new(), true)));
    frames
}

/// Frames by the order that a carrier keeps: that of each channel.
fn by_channel(frames: &[Frame]) -> BTreeMap<u64, Vec<&Frame>> {
    let mut channels: BTreeMap<u64, Vec<&Frame>> = BTreeMap::new();
    for frame in frames {
        channels.entry(frame.channel).or_default().push(frame);
    }
    channels
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_of_every_size_cross_both_ways_in_the_order_of_their_channels() {
    let rig = Rig::new().await;
    for carrier in ALL {
        let (client, mut server) = rig.connect(carrier).await;
        server.admit();
        let (request, answer) = (conversation(Kind::Request), conversation(Kind::Response));
        let mut client = End::new(client, request.clone());
        let mut server = End::new(server, []);
        let frames = request.len();
        let replies = answer.clone();
        let serving = tokio::spawn(async move {
            server.run_until(frames).await;
            server.output.extend(replies);
            server.run_until(frames).await;
            server
        });
        client.run_until(frames).await;
        let server = serving.await.unwrap();
        assert!(client.ended.is_none() && server.ended.is_none(), "{carrier}: {:?} {:?}", client.ended, server.ended);
        assert!(by_channel(&server.input) == by_channel(&request), "{carrier}: the request changed");
        assert!(by_channel(&client.input) == by_channel(&answer), "{carrier}: the answer changed");
    }
}

#[tokio::test]
async fn two_hundred_exchanges_interleave_and_none_is_mixed_up() {
    let rig = Rig::new().await;
    for carrier in ALL {
        let (client, mut server) = rig.connect(carrier).await;
        server.admit();
        let mut output = Vec::new();
        for round in 0..4 {
            for channel in 1..=200 {
                let kind = if round == 0 { Kind::Request } else { Kind::Body };
                output.push(frame(kind, channel, pattern(channel as usize + round, 100 * round), round == 3));
            }
        }
        let mut client = End::new(client, output.clone());
        let mut server = End::new(server, []);
        let (frames, answers) = (output.len(), 200);
        let serving = tokio::spawn(async move {
            let mut answered = 0;
            server
                .run(|end| {
                    for ended in end.input[answered..].iter().filter(|frame| frame.flags.contains(Flags::END)) {
                        end.output.push_back(frame(Kind::Response, ended.channel, vec![7], true));
                    }
                    answered = end.input.len();
                    end.input.len() >= frames && end.output.is_empty()
                })
                .await;
            server
        });
        client.run_until(answers).await;
        let server = serving.await.unwrap();
        assert!(by_channel(&server.input) == by_channel(&output), "{carrier}");
        let mut answered: Vec<u64> = client.input.iter().map(|frame| frame.channel).collect();
        answered.sort_unstable();
        assert!(answered.into_iter().eq(1..=200), "{carrier}");
    }
}

/// On `tls` each byte is a record, on `ws` a fragment of a message, on `quic` a write.
#[tokio::test]
async fn a_peer_that_sends_one_byte_at_a_time_is_understood() {
    let rig = Rig::new().await;
    let sent: Vec<Frame> = (0..20).map(|size| frame(Kind::Ping, 0, pattern(size, size), false)).collect();
    for carrier in ALL {
        let (mut raw, server) = rig.connect_raw(carrier).await;
        let mut bytes = Vec::new();
        sent.iter().for_each(|frame| frame.encode(&mut bytes));
        let writing = tokio::spawn(async move {
            if carrier == ropeway_core::CarrierKind::Ws {
                raw.write(&bytes).await;
            } else {
                for byte in bytes {
                    raw.write(&[byte]).await;
                    tokio::task::yield_now().await;
                }
            }
            raw
        });
        let mut server = End::new(server, []);
        server.run_until(sent.len()).await;
        assert!(server.input == sent, "{carrier}: {:?}", server.ended);
        drop(writing.await.unwrap());
    }
}

#[tokio::test]
async fn both_ends_derive_the_same_binding_where_the_carrier_has_one() {
    let rig = Rig::new().await;
    let mut bindings = Vec::new();
    for carrier in ALL {
        let (client, server) = rig.connect(carrier).await;
        assert_eq!(client.binding(), server.binding(), "{carrier}");
        assert_eq!(client.binding().is_some(), carrier != ropeway_core::CarrierKind::Ws);
        bindings.extend(client.binding());
    }
    assert_ne!(bindings[0], bindings[1], "each connection has its own");
}

const CHANNELS: [u64; 3] = [1, 2, 300];
