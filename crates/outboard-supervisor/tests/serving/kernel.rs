//! Sessions for which the kernel encrypts, where it can: in the machine of `cargo xtask ktls`, if
//! not here.

use outboard_client::link::Link;
use outboard_transport::tls::Records;
use outboard_transport::tls::kernel::{Kernel, check};
use tempfile::TempDir;

use super::copies::{download, upload};
use super::cuts::{LONG, survives_cuts, work_while};
use super::parts::{KERNEL, Part};
use super::proxy::Proxy;
use super::scenarios::works;
use super::secure;

pub(crate) const ALL: &[(&str, fn())] =
    &[(CUTS, survives_cuts_at_any_byte), (USED_UP, goes_on_when_keys_are_used_up)];

const CUTS: &str = "a_session_encrypted_by_the_kernel_survives_cuts_at_any_byte";
const USED_UP: &str = "a_session_encrypted_by_the_kernel_goes_on_when_keys_are_used_up";

/// A server and a client for which the kernel encrypts, with at most so many records of a key of
/// the client's, a wire between them, and the server's folder.
fn served(test: &str, most_records: u64) -> Option<(Part, Proxy, Link, TempDir)> {
    if let Err(why) = check() {
        outboard_test_support::skipped(test, &why.to_string());
        return None;
    }
    let times = format!("{LONG},{LONG}");
    let env = [("OUTBOARD_TEST_GRACE", times.as_str()), (KERNEL, "on")];
    let (server, mut security, state) = secure::serve_with(&env);
    security.records = Records::Kernel(Kernel { otherwise: |why| panic!("{why}"), most_records });
    let proxy = Proxy::start(&server.first_line);
    let link = secure::link(proxy.address(), security);
    assert_eq!(link.peer().0, "tcp+tls");
    Some((server, proxy, link, state))
}

/// How many directions of connections the kernel has encrypted so far, in all of this machine.
fn encrypted_by_kernel() -> u64 {
    let counts = std::fs::read_to_string("/proc/net/tls_stat").unwrap();
    let sent = counts.lines().find_map(|line| line.strip_prefix("TlsTxSw")).unwrap();
    sent.trim().parse().unwrap()
}

fn survives_cuts_at_any_byte() {
    let Some((_server, proxy, link, _state)) = served(CUTS, u64::MAX) else { return };
    let before = encrypted_by_kernel();
    survives_cuts(&proxy, &link);
    let (_, cuts) = proxy.counts();
    // Of each connection that took the place of another one, both ends.
    let made = encrypted_by_kernel() - before;
    assert!(made >= cuts, "{made} ends for {cuts} cuts");
}

/// Commands and lanes: the client's own key, which ends them while bytes go both ways.
fn goes_on_when_keys_are_used_up() {
    let Some((_server, proxy, link, _state)) = served(USED_UP, 400) else { return };
    work_while(&link, 3000, 6, || std::thread::sleep(std::time::Duration::from_millis(20)));
    for round in 0..4 {
        upload(&link, 8 << 20, 256 << 10);
        download(&link, (8 << 20) + round, 256 << 10);
    }
    works(&link);
    let (made, cuts) = proxy.counts();
    assert_eq!(cuts, 0);
    assert!(made >= 12, "{made} connections");
}
