//! What is missing or wrong is said in one line, before anything is made.

use std::process::Command;

use crate::support::{labs, ropeway_lab, text};

/// Runs a lab's command behind another, which takes something away from it, and gives its exit code and its complaint.
fn complaint(before: &[&str], arguments: &[&str]) -> (Option<i32>, String) {
    let lab = ropeway_lab(arguments);
    let mut command = match before {
        [] => lab,
        [program, rest @ ..] => {
            let mut command = Command::new(program);
            command.args(rest).arg(lab.get_program()).args(lab.get_args());
            command.envs(lab.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command
        }
    };
    let output = command.output().expect("the command can be started");
    assert_eq!(text(&output.stdout), "");
    (output.status.code(), text(&output.stderr).trim_end().to_owned())
}

#[test]
fn a_scenario_that_is_not_there_or_wrong_is_named() {
    let (code, words) = complaint(&[], &["run", "elevater", "--", "true"]);
    assert_eq!(
        (code, words.as_str()),
        (Some(2), "ropeway-lab: no scenario `elevater`, did you mean `elevator`?; `ropeway-lab list` shows all")
    );
    let (code, words) = complaint(&[], &["run", "elevator:longer", "--", "true"]);
    assert!(code == Some(2) && words.contains("variant `longer`"), "{words}");

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("odd.toml");
    std::fs::write(&file, "summary = \"-\"\nbasis = \"-\"\nsource = \"-\"\n[access.cell]\nrtt_ms = 60\nloss = 7\n")
        .expect("a file can be written");
    let (code, words) = complaint(&[], &["run", file.to_str().expect("a name"), "--", "true"]);
    assert!(code == Some(2) && words.contains("odd.toml:6: `loss` must be"), "{words}");
    let (code, words) = complaint(&[], &["set", "--lab", "7", "loss=1"]);
    assert!(code == Some(2) && words.contains("0..=3"), "{words}");
}

#[test]
fn a_machine_that_cannot_run_labs_is_told_what_it_lacks() {
    let Some(_labs) = labs() else { return };
    let run = ["run", "wifi-good", "--", "true"];
    let hidden = |script: &'static str| ["unshare", "--mount", "sh", "-c", script, "sh"];

    let nft = complaint(&hidden("mount --bind /dev/null $(PATH=$PATH:/usr/sbin command -v nft); exec \"$@\""), &run);
    assert_eq!(nft, (Some(125), "ropeway-lab: no nft; install it: apt-get install nftables".to_owned()));
    let (code, words) = complaint(&hidden("mount -t tmpfs none /dev/net; exec \"$@\""), &run);
    assert!(code == Some(125) && words.contains("/dev/net/tun") && words.contains("modprobe tun"), "{words}");
    let (code, words) = complaint(&[], &["run", "wifi-good", "--", "no-such-program"]);
    assert!(code == Some(127) && words.ends_with("no program no-such-program"), "{words}");
}

#[test]
fn a_user_who_is_not_root_is_told_so() {
    // A new user namespace makes a nobody of everyone; some systems do not allow it.
    let can = Command::new("unshare").args(["--user", "true"]).status().is_ok_and(|status| status.success());
    if can {
        let (code, words) = complaint(&["unshare", "--user"], &["run", "wifi-good", "--", "true"]);
        assert_eq!(code, Some(125));
        assert!(words.ends_with("a lab makes network namespaces, which takes root; run it with sudo"), "{words}");
    }
}
