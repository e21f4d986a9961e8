use super::*;

fn install(fault: &str) -> Installation {
    let text = format!(
        "summary = \"-\"\nbasis = \"-\"\nsource = \"-\"\n[access.cell]\nrtt_ms = 60\n[access.wifi]\nrtt_ms = 20\n\
         [[site]]\nname = \"a\"\nv4 = 2\nv6 = 1\n[[site]]\nname = \"b\"\nv4 = 1\n[[fault]]\n{fault}\n"
    );
    let scenario = Scenario::parse("sample", &text, None).expect("a scenario");
    Installation::of(&scenario.faults[0], &scenario, &Plan::of(&scenario), 7)
}

/// Gives the rules of a table, one a line, each with its place.
fn rules(table: &Table) -> Vec<String> {
    let each = |(hook, rules): &(nft::Hook, Vec<String>)| {
        rules.iter().map(|rule| format!("{hook:?}: {rule}")).collect::<Vec<_>>()
    };
    table.chains.iter().flat_map(each).collect()
}

#[test]
fn a_dead_site_is_dead_at_every_address_both_ways() {
    let found = rules(&install("kind = \"address\"\nhow = \"drop\"").isp);
    assert_eq!(found.len(), 6);
    assert_eq!(found[0], "Forward: iifname { \"cell0\", \"wifi0\" } ip daddr 198.18.0.10 drop");
    assert_eq!(found[5], "Forward: oifname { \"cell0\", \"wifi0\" } ip6 saddr 2001:db8:18::10 drop");
}

#[test]
fn a_fault_of_one_link_leaves_the_other_alone() {
    let found = rules(&install("kind = \"portal\"\nlink = \"wifi\"").isp);
    assert_eq!(
        found,
        [
            "Redirect: iifname { \"wifi0\" } tcp dport 80 redirect to :10080",
            "Forward: iifname { \"wifi0\" } meta l4proto { tcp, udp } th dport != 53 drop",
        ]
    );
}

#[test]
fn the_answers_of_name_servers_pass_where_udp_is_blocked() {
    let found = rules(&install("kind = \"udp\"\nhow = \"block\"").isp);
    assert!(found[0].ends_with("udp dport != 53 drop") && found[1].ends_with("udp sport != 53 drop"), "{found:?}");
}

#[test]
fn a_nat_s_memory_is_set_in_whole_seconds() {
    let installed = install("kind = \"nat\"\ntcp_idle_s = 9.6\nudp_idle_s = 0.2\nat_expiry = \"reset\"");
    let values: Vec<&str> = installed.settings.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, ["10", "1", "1"]);
    assert_eq!(rules(&installed.isp).len(), 2);
}

#[test]
fn an_island_and_a_balancer_are_made_at_the_servers() {
    let cut = |fault| rules(&install(fault).server);
    let [at_a, at_b] = ["10.67.0.2", "10.67.0.3"].map(|to| format!("Output: oifname \"backend0\" ip daddr {to} drop"));
    assert_eq!(cut("kind = \"island\"\nsite = \"b\""), [at_b.as_str()]);
    assert_eq!(cut("kind = \"island\""), [at_a, at_b]);
    let installed = install("kind = \"balancer\"\nhow = \"bad-gateway\"\naddress = 1");
    assert_eq!(
        rules(&installed.server),
        [
            "Redirect: ip daddr 198.18.0.11 tcp dport 80 redirect to :10901",
            "Redirect: ip daddr 198.18.0.11 meta l4proto tcp redirect to :10911",
        ]
    );
}

#[test]
fn slow_addresses_do_not_share_what_is_known_of_their_flows() {
    let installed = install("kind = \"address\"\nhow = \"slow-syn\"\ndelay_s = 3\nfamily = \"v4\"");
    assert_eq!(installed.isp.sets.len(), 4);
    assert!(installed.isp.sets[2].starts_with("set waiting_198_18_0_11 { type ipv4_addr . inet_service;"));
    assert!(installed.isp.sets[0].contains("timeout 2750ms"));
}
