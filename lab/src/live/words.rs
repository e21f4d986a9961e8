//! What happens in a network, in words.

use ropeway_core::sim::{
    link::Outage,
    scenario::{
        AddressFault, BalancerFault, DnsFault, Family, Fault, FaultKind, MiddleboxFault, NatExpiry, Pace, Scenario,
        Shape, Shapes, Target, TlsFault, UdpFault, V6Fault,
    },
};

/// Tells of an outage that begins or ends.
pub(super) fn outage(outage: Option<Outage>) -> &'static str {
    match outage {
        Some(Outage::Drop) => "outage, packets are dropped",
        Some(Outage::Hold) => "outage, packets are held",
        None => "outage over",
    }
}

/// Tells what a link is like.
pub(super) fn shapes(shapes: &Shapes) -> String {
    let rtt = shapes.down.impairments.delay + shapes.up.impairments.delay;
    let (down, up) = (shape(&shapes.down), shape(&shapes.up));
    let both = if down == up { format!("{down} both ways") } else { format!("{down} down, {up} up") };
    format!("round trip {} ms, {both}", rtt.as_millis())
}

/// Tells what one direction of a link is like.
fn shape(shape: &Shape) -> String {
    let mut text = match &shape.pace {
        Pace::Rate { bits_per_s } => format!("{} kbit/s", *bits_per_s as f64 / 1e3),
        Pace::Recorded { file } => format!("trace {file}"),
        Pace::Synthetic(radio) => format!("trace {}", radio.as_str()),
        Pace::Unlimited => "any rate".to_owned(),
    };
    let impairments = &shape.impairments;
    let burst = impairments.burst.map_or(0.0, |burst| burst.mean_loss());
    for (share, what) in [
        (impairments.loss, "lost"),
        (burst, "lost in bursts"),
        (impairments.duplicate, "doubled"),
        (impairments.corrupt, "corrupted"),
        (impairments.reorder, "reordered"),
    ] {
        if share > 0.0 {
            text.push_str(&format!(", {} {what}", percent(share)));
        }
    }
    text
}

/// Tells what a fault is.
pub(super) fn fault(fault: &Fault, scenario: &Scenario) -> String {
    let link = fault.link.and_then(|link| scenario.access.get(link)).map(|link| format!(" on {}", link.name));
    let at = |target: &Target| entry(target, scenario);
    let words = match &fault.kind {
        FaultKind::Address { target, how } => match how {
            AddressFault::Drop => format!("{} dead", at(target)),
            AddressFault::Lossy { share } => format!("{} loses {} each way", at(target), percent(*share)),
            AddressFault::Refuse => format!("{} refuses connections", at(target)),
            AddressFault::SlowSyn { delay } => {
                format!("{} answers the first SYN after {} s", at(target), delay.as_secs_f64())
            }
        },
        FaultKind::Balancer { target, how } => match how {
            BalancerFault::BadGateway => format!("balancer at {} answers 502", at(target)),
            BalancerFault::Hang => format!("balancer at {} accepts and says nothing", at(target)),
            BalancerFault::Reset => format!("balancer at {} accepts and resets", at(target)),
        },
        FaultKind::Dns { how, share } => {
            let what = match how {
                DnsFault::Drop => "not answered",
                DnsFault::Hijack => "answered with somebody else's address",
                DnsFault::Loopback => "answered with 127.0.0.2",
                DnsFault::NoSuchName => "answered with NXDOMAIN",
            };
            format!("{} of questions for names {what}", percent(*share))
        }
        FaultKind::Island { site } => {
            let site = site.and_then(|site| scenario.sites.get(site)).map(|site| format!(" of site {}", site.name));
            format!("nothing passes between gateways{} and backend", site.unwrap_or_default())
        }
        FaultKind::Middlebox { how: MiddleboxFault::NoChunked } => "a middlebox cuts chunked bodies".to_owned(),
        FaultKind::Middlebox { how: MiddleboxFault::NoKeepAlive } => {
            "a middlebox swallows all requests on a connection but the first".to_owned()
        }
        FaultKind::Mtu { bytes, family } => {
            let family = match family {
                Some(Family::V4) => " of IPv4",
                Some(Family::V6) => " of IPv6",
                None => "",
            };
            format!("packets{family} of more than {bytes} bytes vanish")
        }
        FaultKind::Nat { tcp_idle, at_expiry, udp_idle } => {
            let forgets = [("TCP", tcp_idle), ("UDP", udp_idle)].into_iter().filter_map(|(protocol, idle)| {
                idle.map(|idle| format!("{protocol} flows idle for {} s", idle.as_secs_f64()))
            });
            let forgets: Vec<String> = forgets.collect();
            let then = match at_expiry {
                NatExpiry::Reset => "and resets what comes after",
                NatExpiry::Silent => "without a word",
            };
            format!("the NAT forgets {} {then}", forgets.join(" and "))
        }
        FaultKind::Portal => "a captive portal".to_owned(),
        FaultKind::Ports { allow } => {
            let ports: Vec<String> = allow.iter().map(ToString::to_string).collect();
            format!("only ports {} pass", ports.join(", "))
        }
        FaultKind::Tamper => "plain HTTP answers are altered".to_owned(),
        FaultKind::Tls { how: TlsFault::Reset } => "TLS handshakes are reset".to_owned(),
        FaultKind::Tls { how: TlsFault::Swallow } => "TLS handshakes vanish".to_owned(),
        FaultKind::Tls { how: TlsFault::WrongCertificate } => "TLS meets a wrong certificate".to_owned(),
        FaultKind::Udp { how: UdpFault::Block } => "UDP is blocked".to_owned(),
        FaultKind::Udp { how: UdpFault::FirstPacket } => "the first packet of a UDP flow passes, no other".to_owned(),
        FaultKind::Udp { how: UdpFault::Police { bits_per_s } } => {
            format!("UDP is policed to {} kbit/s", *bits_per_s as f64 / 1e3)
        }
        FaultKind::V6 { how: V6Fault::Drop } => "IPv6 is dead".to_owned(),
        FaultKind::V6 { how: V6Fault::DropTcp } => "TCP over IPv6 vanishes".to_owned(),
        FaultKind::V6 { how: V6Fault::LoseSyn { share } } => format!("{} of SYNs over IPv6 lost", percent(*share)),
    };
    words + &link.unwrap_or_default()
}

/// Names the addresses of a fault.
fn entry(target: &Target, scenario: &Scenario) -> String {
    let site = scenario.sites.get(target.site).map_or("?", |site| site.name.as_str());
    let family = match target.family {
        Some(Family::V4) => "IPv4 ",
        Some(Family::V6) => "IPv6 ",
        None => "",
    };
    match target.address {
        Some(address) => format!("{family}address {address} of site {site}"),
        None if family.is_empty() => format!("site {site}"),
        None => format!("{family}of site {site}"),
    }
}

fn percent(share: f64) -> String {
    format!("{} %", (share * 1e4).round() / 1e2)
}
