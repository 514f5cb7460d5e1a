//! Programs with several servers: what befalls the session of one, the others do not notice.

use std::fs;
use std::time::Duration;

use outboard_e2e::{
    Driver, Folder, PATIENCE, Program, Running, Server, is_alive, outboard, processes_below,
    reaching_loopback, within,
};
use outboard_test_support::skip;
use serde_json::Value;

use crate::proxy::Proxy;

/// A server with one software device of 512 MiB. On a GPU it offers what there is.
fn serve(args: &[&str]) -> Server {
    let args = [&["--driver", Driver::chosen().name()], args].concat();
    Server::start_with(&reaching_loopback(&args), &[("OUTBOARD_CPU_MEMORY", "512M")])
}

/// The program `each_device`: works on all devices at once, and tells of each.
struct Rounds {
    folder: Folder,
    running: Running,
}

impl Rounds {
    /// With the first device of each of these addresses.
    fn start(addresses: [&str; 2], transport: &str, args: &[&str]) -> Rounds {
        let folder = Folder::create();
        let program = Program::new("each_device").arg(folder.to_str().expect("a plain path"));
        let program = program.env("OUTBOARD_TRANSPORT", transport);
        let program = args.iter().fold(program, |program, arg| program.arg(arg));
        let mut running =
            program.start_through_list(&addresses.map(|address| format!("{address}/0")).join(","));
        running.wait_for_line("running");
        Rounds { folder, running }
    }

    /// How many rounds a device has done.
    fn done(&self, device: usize) -> u64 {
        fs::metadata(self.folder.path(&format!("rounds.{device}"))).map_or(0, |file| file.len())
    }

    /// Whether a device does more rounds than those that are on their way.
    fn goes_on(&self, device: usize) -> bool {
        let before = self.done(device);
        within(PATIENCE, || self.done(device) > before + 3)
    }

    /// Waits until a device does no more, and says how many rounds it has done.
    fn stands_still(&self, device: usize) -> u64 {
        let mut before = None;
        let stands = within(PATIENCE, || {
            let now = self.done(device);
            std::thread::sleep(Duration::from_millis(300));
            before.replace(now) == Some(now)
        });
        assert!(stands, "device {device} works on");
        self.done(device)
    }

    /// The first device works while the second does not.
    fn only_the_first_goes_on(&self) {
        let before = self.stands_still(1);
        for _ in 0..5 {
            assert!(self.goes_on(0), "the first server's device is held up");
        }
        assert_eq!(self.done(1), before, "the second server's device waits");
    }

    fn both_go_on(&self) {
        assert!(self.goes_on(0) && self.goes_on(1), "{} and {} rounds", self.done(0), self.done(1));
    }

    /// Its folder; a child of the program lives as long.
    fn finish(self) -> Folder {
        self.folder.write("end", "");
        let outcome = self.running.finish();
        outcome.expect_success("a program with two servers");
        assert!(outcome.stdout.ends_with("2 devices: done\n"), "{}", outcome.stdout);
        self.folder
    }
}

/// From one moment to the next, all connections are closed, and none is made any more.
fn cut(proxy: &Proxy) {
    proxy.close(true);
    assert!(within(PATIENCE, || proxy.cut(None) == 0), "connections end");
}

/// The server's only session.
fn session(server: &Server) -> Value {
    let said = outboard(&["sessions", "--json", "--over", "0.1", "--server", server.address()]);
    let listing: Value =
        serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!(listing["sessions"].as_array().map(Vec::len), Some(1), "{listing}");
    listing["sessions"][0].clone()
}

#[test]
fn a_server_that_cannot_be_reached_for_a_while_holds_up_no_other() {
    let (first, second) = (serve(&[]), serve(&["--closed-grace", "60"]));
    let proxy = Proxy::start(second.address());
    let rounds = Rounds::start([first.address(), proxy.address()], "tcp", &[]);
    for _ in 0..2 {
        rounds.both_go_on();
        cut(&proxy);
        rounds.only_the_first_goes_on();
        assert_eq!(
            (&session(&first)["state"], &session(&second)["state"]),
            (&"serving".into(), &"disconnected".into())
        );
        proxy.close(false);
    }
    rounds.both_go_on();
    rounds.finish();
    assert!(
        within(PATIENCE, || first.workers().is_empty() && second.workers().is_empty()),
        "both sessions end"
    );
}

#[test]
fn a_session_that_lends_its_memory_holds_up_no_other() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    let first = serve(&[]);
    let second = serve(&[
        "--memory",
        "300M",
        "--oversubscribe",
        "--idle",
        "1",
        "--suspended-memory",
        "512M",
    ]);
    let rounds = Rounds::start([first.address(), second.address()], "tcp", &["160"]);
    let rest = rounds.folder.write("rest.1", "");
    rounds.stands_still(1);
    // This one is never idle, so that the session which made room for it waits until it has ended.
    let mut other = Program::new("endless").arg("160").start_through(&second);
    other.wait_for_line("running");
    second.expect_logged("an idle session is suspended");
    fs::remove_file(rest).expect("it is there");
    rounds.only_the_first_goes_on();
    other.kill();
    rounds.both_go_on();
    second.expect_logged("a suspended session goes on");
    assert!(!first.log().contains("suspended"), "{}", first.log());
    rounds.finish();
}

#[test]
fn a_server_that_is_replaced_holds_up_no_other() {
    let (first, mut second) = (serve(&[]), serve(&["--closed-grace", "60"]));
    let proxy = Proxy::start(second.address());
    let rounds = Rounds::start([first.address(), proxy.address()], "tcp", &[]);
    second.ask_to_upgrade();
    second.expect_upgrades(1);
    rounds.both_go_on();
    second.kill();
    rounds.both_go_on();
    // Who has lost its connection waits for the next server.
    cut(&proxy);
    proxy.close(false);
    rounds.only_the_first_goes_on();
    second.start_again();
    rounds.both_go_on();
    rounds.finish();
    assert_eq!(first.upgrades(), 0);
    assert!(
        within(PATIENCE, || first.records().is_empty() && second.records().is_empty()),
        "nothing is left"
    );
}

/// Starts a program with two servers that has a child which does nothing, and returns it when its
/// sessions are the only ones.
fn with_child([first, second]: &[Server; 2], transport: &str) -> Rounds {
    let rounds = Rounds::start([first.address(), second.address()], transport, &["1", "fork"]);
    first.only_worker();
    second.only_worker();
    rounds
}

fn both_sessions_end([first, second]: &[Server; 2], why: &str) {
    let ended = within(Duration::from_secs(10), || {
        first.workers().is_empty() && second.workers().is_empty()
    });
    assert!(ended, "{why}: {:?} and {:?} are left", first.workers(), second.workers());
}

fn end_despite_a_child(transport: &str) {
    let servers = [(); 2].map(|()| serve(&["--closed-grace", "1"]));
    let rounds = with_child(&servers, transport);
    let child = child_of(&rounds);
    rounds.both_go_on();
    let folder = rounds.finish();
    both_sessions_end(&servers, "the program has ended");
    assert!(is_alive(child), "its child goes on");
    drop(folder);

    let mut rounds = with_child(&servers, transport);
    let child = child_of(&rounds);
    rounds.running.kill();
    both_sessions_end(&servers, "the program was killed");
    assert!(is_alive(child), "its child goes on");
}

#[test]
fn both_sessions_end_with_a_program_whose_child_lives_on() {
    end_despite_a_child("tcp");
}

#[test]
fn so_they_do_in_shared_memory() {
    end_despite_a_child("shm");
}

fn child_of(rounds: &Rounds) -> u32 {
    let children = processes_below(rounds.running.id());
    assert_eq!(children.len(), 1, "{children:?}");
    children[0]
}
