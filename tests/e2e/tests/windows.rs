//! Windows of addresses: what a session's driver places lies in the window that its client has
//! accepted.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use outboard_e2e::{
    Driver, Folder, Hostile, Outcome, Program, RawClient, Running, Server, dist, within,
};
use outboard_test_support::skip;
use outboard_wire::Encode;
use outboard_wire::handshake::windows::{Acceptable, WINDOWS};
use outboard_wire::handshake::{Extensions, Purpose, RefusalCode, Welcome};
use outboard_wire::window::Window;

use crate::proxy::Proxy;

/// What a program has where its own memory is; all else that it shows is the driver's.
const OWN: [&str; 3] = ["locked", "registered", "host"];
/// All that it shows.
const SHOWN: usize = 12;

fn window(number: u32) -> Window {
    Window::numbered(number).expect("a window")
}

/// A server of the device under test.
fn serve(args: &[&str], env: &[(&str, &str)]) -> Server {
    Server::start_with(&[&["--driver", Driver::chosen().name()], args].concat(), env)
}

/// A run of the program that shows where things lie, and the file in which the client library says
/// where they should.
struct Run {
    running: Running,
    folder: Folder,
}

/// What came of it.
struct Shown {
    window: Option<Window>,
    /// First address and bytes, by name; those of a name that is shown twice follow each other.
    places: BTreeMap<String, Vec<(u64, u64)>>,
}

fn start(program: Program, list: &str) -> Run {
    let folder = Folder::create();
    let program = program.env("OUTBOARD_PROFILE", &folder.path("profile"));
    Run { running: program.start_through_list(list), folder }
}

fn program(args: &[&str]) -> Program {
    args.iter().fold(Program::new("windows"), |program, arg| program.arg(arg))
}

/// That program, with a page of its own in the middle of each of these windows.
fn occupant(windows: impl IntoIterator<Item = Window>) -> Program {
    let middle = |window: Window| {
        let range = window.range();
        format!("{:x}", range.start + (range.end - range.start) / 2)
    };
    let there = windows.into_iter().map(middle);
    there.fold(program(&[]), |program, at| program.arg("occupy").arg(&at))
}

fn run(program: Program, server: &Server) -> Shown {
    start(program, server.address()).finish()
}

impl Run {
    fn finish(self) -> Shown {
        let outcome = self.running.finish();
        outcome.expect_success("windows");
        let profile = fs::read(self.folder.join("profile")).expect("the client library wrote it");
        let said: serde_json::Value = serde_json::from_slice(&profile).expect("JSON");
        let first = said["window"].as_str().map(|text| hex(text.trim_start_matches("0x")));
        let window = first.map(|first| {
            Window::all()
                .find(|window| window.range().start == first)
                .expect("the window is one that there is")
        });
        Shown { window, places: places(&outcome) }
    }
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap_or_else(|_| panic!("`{text}` is no number"))
}

fn places(outcome: &Outcome) -> BTreeMap<String, Vec<(u64, u64)>> {
    let mut places: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for line in outcome.stdout.lines() {
        if let [name, address, bytes] = line.split(' ').collect::<Vec<_>>()[..] {
            places.entry(name.to_owned()).or_default().push((hex(address), hex(bytes)));
        }
    }
    assert_eq!(places.len(), SHOWN, "{}", outcome.stdout);
    assert!(
        places.contains_key("reserved_there"),
        "an address that was asked for is given: {}",
        outcome.stdout
    );
    places
}

impl Shown {
    /// The window, in which all lies that the driver has placed, and nothing else.
    fn expect_window(&self) -> Window {
        let window = self.window.expect("a window");
        for (name, places) in &self.places {
            for (address, bytes) in places {
                let inside = window.contains(*address, *bytes);
                assert_eq!(
                    inside,
                    !OWN.contains(&name.as_str()),
                    "{name} at {address:#x} in {window}"
                );
            }
        }
        window
    }
}

#[test]
fn what_the_driver_places_lies_in_the_window() {
    let server = serve(&[], &[]);
    let cold = run(program(&[]), &server).expect_window();
    assert_eq!(cold.number(), Some(0), "the first that the client accepts");
    let socket = Folder::create();
    let path = socket.path("server.sock");
    let local = serve(&["--socket", &path, "--warm", "1", "--sandbox", "on"], &[]);
    run(program(&[]).sharing_memory(), &local).expect_window();
}

#[test]
fn sessions_whose_clients_accept_different_windows_have_different_addresses() {
    let server = serve(&["--warm", "1"], &[]);
    let first = run(program(&[]), &server);
    let other = run(occupant([first.expect_window()]), &server);
    other.expect_window();
    for (name, places) in &first.places {
        let (a, bytes) = places[0];
        let (b, more) = other.places[name][0];
        let apart = a + bytes <= b || b + more <= a;
        assert!(apart || OWN.contains(&name.as_str()), "{name} at {a:#x} and {b:#x}");
    }
}

#[test]
fn a_program_that_has_something_in_all_windows_is_served_without() {
    let server = serve(&["--warm", "1"], &[]);
    let shown = run(occupant(Window::all()), &server);
    assert_eq!(shown.window, None);
    for (name, places) in shown.places.iter().filter(|(name, _)| !OWN.contains(&name.as_str())) {
        let (address, _) = places[0];
        assert!(Window::all().all(|window| !window.contains(address, 1)), "{name} at {address:#x}");
    }
}

#[test]
fn a_program_with_few_addresses_of_its_own_is_served() {
    let server = serve(&[], &[]);
    // 64 GiB: less than a window.
    let limited = ["sh", "-c", "ulimit -v 67108864 && exec \"$@\"", "sh"];
    let shown = run(program(&[]).under(&limited), &server);
    let window = shown.window.expect("a window");
    for (name, places) in shown.places.iter().filter(|(name, _)| !OWN.contains(&name.as_str())) {
        assert!(window.contains(places[0].0, places[0].1), "{name} in {window}");
    }
}

#[test]
fn a_worker_with_few_addresses_of_its_own_serves_without_a_window() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    let folder = Folder::create();
    let outboard = fs::canonicalize(dist().join("bin/outboard")).expect("it is there");
    // 8 TiB are enough for the software device, but not to occupy what others must not have.
    let script = folder.write(
        "serve",
        &format!("#!/bin/sh\nulimit -v 8589934592\nexec {} \"$@\"\n", outboard.display()),
    );
    folder.allow("serve", 0o700);
    let server = Server::start_program(script.as_ref(), &["--driver", "cpu", "--warm", "1"], &[]);
    assert_eq!(run(program(&[]), &server).window, None);
    server.expect_logged("cannot be kept to a window");
}

#[test]
fn devices_that_are_too_large_for_a_window_are_served_without() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    let server =
        serve(&["--warm", "1"], &[("OUTBOARD_CPU_DEVICES", "16"), ("OUTBOARD_CPU_MEMORY", "64G")]);
    Program::new("vector_add").through(&server).expect_success("vector_add");
    server.expect_logged("does not keep to a window");
}

/// What a client says that accepts these.
fn accepting(windows: &impl Encode) -> Extensions {
    let mut more = Extensions::default();
    more.set(WINDOWS, windows);
    more
}

fn session(server: &Server, windows: &[u32]) -> RawClient {
    let windows = Acceptable(windows.iter().copied().map(window).collect());
    RawClient::connect_saying(server.address(), accepting(&windows)).expect("a session")
}

fn told(client: &RawClient) -> Option<Window> {
    client.welcome().more.get(WINDOWS).expect("a window, or none")
}

/// Wherever the system has loaded the worker's program and libraries.
#[test]
fn a_worker_can_have_any_window() {
    let server = serve(&[], &[]);
    for number in 0..Window::COUNT {
        let got = told(&session(&server, &[number]));
        assert_eq!(got, Some(window(number)), "{}", server.log());
    }
}

/// The window of the one worker that waits, once it does.
fn waiting(server: &Server, so_far: usize) -> Window {
    let windows = || -> Vec<u64> {
        let log = server.log();
        let entries =
            log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let warm = entries.filter(|entry| entry["fields"]["message"] == "warm");
        warm.map(|entry| {
            hex(entry["fields"]["window"].as_str().expect("a window").trim_start_matches("0x"))
        })
        .collect()
    };
    assert!(within(Duration::from_secs(60), || windows().len() > so_far), "{}", server.log());
    Window::all()
        .find(|window| window.range().start == windows()[so_far])
        .expect("one that there is")
}

/// How many of the sessions, of which so many have begun, got a worker that waited. The log may be
/// behind.
fn warm_sessions(server: &Server, begun: usize) -> usize {
    let count = |part: &str| server.log().lines().filter(|line| line.contains(part)).count();
    assert!(
        within(Duration::from_secs(60), || count("session starts") == begun),
        "{}",
        server.log()
    );
    count("\"warm\":true")
}

#[test]
fn a_session_gets_the_worker_that_waits_if_its_client_accepts_the_window() {
    let server = serve(
        &["--warm", "1"],
        &[("OUTBOARD_LOG", "outboard_supervisor=debug,outboard_worker=debug")],
    );
    let there = waiting(&server, 0).number().expect("a number");
    let others: Vec<u32> = (0..Window::COUNT).filter(|number| *number != there).rev().collect();

    let mut passed_over = session(&server, &others);
    assert_eq!((told(&passed_over), warm_sessions(&server, 1)), (Some(window(others[0])), 0));
    let none = session(&server, &[]);
    assert_eq!((told(&none), warm_sessions(&server, 2)), (None, 0));
    let mut matched = session(&server, &[others[0], there]);
    assert_eq!(
        (told(&matched), warm_sessions(&server, 3)),
        (Some(window(there)), 1),
        "{}",
        server.log()
    );
    for client in [&mut passed_over, &mut matched] {
        client.open();
        let address = client.alloc(1 << 20).expect("memory");
        assert!(
            told(client).is_some_and(|window| window.contains(address, 1 << 20)),
            "{address:#x}"
        );
    }

    // Who says nothing of windows gets any worker, and is told nothing of them.
    waiting(&server, 1);
    let silent = RawClient::connect(&server);
    assert_eq!((told(&silent), warm_sessions(&server, 4)), (None, 2));
}

#[test]
fn a_client_that_lists_nonsense_gets_a_window_that_there_is_or_none() {
    let server = serve(&[], &[]);
    let connect = |more| RawClient::connect_saying(server.address(), more);
    let strange = |address: u64, bytes: u64| -> Window {
        outboard_wire::codec::decode_all(&[address, bytes].map(u64::to_le_bytes).concat())
            .expect("a range")
    };
    let ranges = [
        strange(0x1_0000, 0x1_0000),
        strange(0x3000_0000_0000, 0x1_0000),
        strange(1 << 63, 1 << 62),
    ];
    assert_eq!(told(&connect(accepting(&Acceptable(ranges.to_vec()))).expect("a session")), None);
    let with_one = [ranges[0], window(5), window(5), ranges[2]];
    assert_eq!(
        told(&connect(accepting(&Acceptable(with_one.to_vec()))).expect("a session")),
        Some(window(5))
    );
    let many = vec![window(5); Acceptable::MOST as usize + 1];
    for more in
        [accepting(&many), accepting(&u32::MAX), accepting(&7_u64), accepting(&vec![(0_u64), 0, 0])]
    {
        let refusal = connect(more).err().expect("a refusal");
        assert_eq!(refusal.code, RefusalCode::BadHello, "{}", refusal.sentence);
    }
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[test]
fn a_server_that_grants_what_was_not_accepted_is_not_used() {
    let server = serve(&[], &[]);
    // In the window of this number, the program has something.
    let grant = |welcome: &mut Welcome, purpose: &Purpose| {
        if matches!(purpose, Purpose::Session { .. }) {
            welcome.more.set(WINDOWS, &window(7));
        }
    };
    let hostile = Hostile::with_welcome(server.address(), Box::new(grant));
    let program = occupant([window(7)]).env("OUTBOARD_LOG", "1").env("OUTBOARD_RECONNECT", "0");
    let outcome = program.through_list(hostile.address());
    assert!(!outcome.status.success(), "{}", outcome.stdout);
    assert!(
        outcome.stderr.contains("window of addresses that was not accepted"),
        "{}",
        outcome.stderr
    );
}

/// A program that has shown everything once and waits until it is to do so again.
fn waiting_program(folder: &Folder, list: &str) -> Run {
    let mut run = start(program(&["wait", &folder.path("go")]), list);
    run.running.wait_for_line("waiting");
    run
}

fn go_on(run: Run, folder: &Folder) {
    folder.write("go", "");
    let shown = run.finish();
    shown.expect_window();
    assert!(shown.places.values().all(|places| places.len() == 2));
}

#[test]
fn a_session_that_is_taken_up_again_keeps_its_window() {
    let (server, folder) = (serve(&["--warm", "1"], &[]), Folder::create());
    let proxy = Proxy::start(server.address());
    let run = waiting_program(&folder, proxy.address());
    assert!(proxy.cut(None) > 0);
    go_on(run, &folder);
}

#[test]
fn a_session_keeps_its_window_with_the_next_server() {
    let (mut server, folder) = (serve(&["--warm", "1"], &[]), Folder::create());
    let run = waiting_program(&folder, server.address());
    server.ask_to_upgrade();
    server.expect_upgrades(1);
    server.kill();
    server.start_again();
    go_on(run, &folder);
}
