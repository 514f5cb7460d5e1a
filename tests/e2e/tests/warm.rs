//! Workers that waited for their clients, with contexts made ahead: programs behave as with any
//! other worker.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use outboard_e2e::metrics::{address, scrape, sum};
use outboard_e2e::raw_client::hello_saying;
use outboard_e2e::{Driver, Folder, Program, RawClient, Server, within};
use outboard_test_support::skip;
use outboard_wire::handshake::rdma::{Able, Adapters, RDMA};
use outboard_wire::handshake::{Extensions, Purpose};

/// A server with so many workers, once they wait.
fn serve(warm: usize, more: &[&str], env: &[(&str, &str)]) -> Server {
    let count = warm.to_string();
    let args = [&["--driver", Driver::chosen().name(), "--warm", &count], more].concat();
    let server = Server::start_with(
        &args,
        &[env, &[("OUTBOARD_LOG", "outboard_supervisor=debug,outboard_worker=debug")]].concat(),
    );
    wait(&server, warm);
    server
}

/// A server with workers between bounds, once the least of them wait.
fn serve_between(bounds: &str, more: &[&str]) -> Server {
    let args = ["--driver", Driver::chosen().name(), "--warm", bounds, "--metrics", "0"];
    let server = Server::start_with(
        &[&args, more].concat(),
        &[("OUTBOARD_LOG", "outboard_supervisor=debug,outboard_worker=debug")],
    );
    wait(&server, bounds[..1].parse().expect("a digit"));
    server
}

/// Waits until so many workers have been ready since the server started.
fn wait(server: &Server, ready: usize) {
    let count =
        || server.log().lines().filter(|line| line.contains("\"message\":\"warm\"")).count();
    assert!(within(Duration::from_secs(60), || count() >= ready), "{}", server.log());
}

/// Sessions so far that were given a worker that had waited.
fn warm_sessions(server: &Server) -> usize {
    server.log().lines().filter(|line| line.contains("\"warm\":true")).count()
}

/// The same, of which the log may say later than their programs.
#[track_caller]
fn expect_warm_sessions(server: &Server, count: usize) {
    within(Duration::from_secs(60), || warm_sessions(server) >= count);
    assert_eq!(warm_sessions(server), count, "{}", server.log());
}

/// What adapters the server has, only a worker finds out, and not the one that waits.
#[test]
fn a_client_with_adapters_is_told_of_the_servers_or_why_there_are_none() {
    let server = serve(1, &[], &[]);
    let mut more = Extensions::default();
    more.set(RDMA, &Able);
    let stream = TcpStream::connect(server.address()).expect("it listens");
    let (_, welcome) = hello_saying(stream, Purpose::Probe, more).expect("a welcome");
    let adapters: Adapters = welcome.more.get(RDMA).expect("it makes sense").expect("it is there");
    assert_ne!(adapters.addresses.is_empty(), adapters.missing.is_empty(), "{adapters:?}");
}

#[test]
fn contexts_made_ahead_do_not_show() {
    let server = serve(1, &[], &[]);
    // Flags set before the first use, contexts of one's own, a device reset, launches, memory,
    // errors that end a context.
    for (index, name) in ["contexts", "driver_objects", "vector_add", "driver_memory", "fault_null"]
        .iter()
        .enumerate()
    {
        let program = Program::new(name);
        let (direct, remote) = (program.directly(), program.through(&server));
        direct.expect_success(name);
        remote.expect_success(name);
        assert_eq!(direct.stdout, remote.stdout, "{name}");
        expect_warm_sessions(&server, index + 1);
        wait(&server, index + 2);
    }
}

#[test]
fn sessions_give_back_what_they_do_not_use() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    let server = serve(1, &["--warm-devices", "0,1"], &[("OUTBOARD_CPU_DEVICES", "3")]);
    for (index, list) in ["/1", "/2", "/2,/0", ""].iter().enumerate() {
        let list: Vec<String> =
            list.split(',').map(|device| format!("{}{device}", server.address())).collect();
        let outcome = Program::new("contexts").through_list(&list.join(","));
        outcome.expect_success("contexts");
        wait(&server, index + 2);
    }
    expect_warm_sessions(&server, 4);
}

#[test]
fn more_programs_than_waiting_workers() {
    let server = serve(2, &[], &[]);
    let program = Program::new("histogram");
    let wanted = program.directly().stdout;
    let clients: Vec<_> = (0..6).map(|_| program.start_through(&server)).collect();
    for client in clients {
        let outcome = client.finish();
        outcome.expect_success("one of six");
        assert_eq!(outcome.stdout, wanted);
    }
    assert!(within(Duration::from_secs(60), || warm_sessions(&server) >= 2), "{}", server.log());
    // Those that were taken are replaced.
    wait(&server, 4);
    assert!(within(Duration::from_secs(60), || server.workers().len() == 2), "{}", server.log());
}

#[test]
fn devices_to_wait_on_that_are_not_there_cost_nothing() {
    let server = serve(1, &["--warm-devices", "7"], &[]);
    Program::new("vector_add").through(&server).expect_success("vector_add");
    expect_warm_sessions(&server, 1);
}

#[test]
fn questions_of_nvml_take_no_waiting_worker() {
    let server = serve(1, &[], &[]);
    Program::new("nvml").arg("remote").through(&server).expect_success("nvml");
    // NVML's sessions had workers of their own, which start no driver; the program's CUDA found the
    // one that waited.
    let sessions = |what: &str| server.log().lines().filter(|line| line.contains(what)).count();
    assert!(sessions("\"warm\":false") >= 1, "{}", server.log());
    expect_warm_sessions(&server, 1);
}

/// So many sessions that come at once; how long each took to be let in.
fn burst(server: &Server, count: usize) -> Vec<Duration> {
    let session = || {
        let came = Instant::now();
        RawClient::connect_to(server.address()).map(|client| (client, came.elapsed()))
    };
    let let_in: Vec<_> = std::thread::scope(|scope| {
        let sessions: Vec<_> = (0..count).map(|_| scope.spawn(session)).collect();
        sessions.into_iter().map(|session| session.join().expect("no panic")).collect()
    });
    let mut times: Vec<Duration> = let_in.into_iter().flatten().map(|(_, time)| time).collect();
    times.sort_unstable();
    times
}

/// A figure of the server's metrics.
fn figure(server: &Server, name: &str, label: &str) -> usize {
    sum(&scrape(&address(server)), name, &[label]) as usize
}

/// Who reads metrics has a process look at the devices.
const WATCHES: usize = 1;
const READY: &str = "outboard_warm_workers";
const WANTED: &str = "outboard_warm_workers_wanted";
const GIVEN: &str = "outboard_workers_given_total";

#[test]
fn a_burst_like_the_last_one_finds_workers_and_they_go_when_none_comes() {
    const BURST: usize = 3;
    const LONG: Duration = Duration::from_secs(60);
    let server = serve_between("1-3", &["--warm-for", "8"]);
    let cold = burst(&server, BURST);
    assert_eq!(cold.len(), BURST);
    assert!(within(LONG, || figure(&server, READY, "") == BURST), "{}", server.log());
    let before = figure(&server, GIVEN, "\"ready\"");
    let warm = burst(&server, BURST);
    assert_eq!(figure(&server, GIVEN, "\"ready\"") - before, BURST, "{}", server.log());
    // No bound: the software device starts in a time that a busy machine hides.
    eprintln!("let in after {cold:?}, then after {warm:?}");
    // Those that were taken are replaced a little later.
    assert!(within(LONG, || figure(&server, "outboard_warm_host_memory_bytes", "") > 1 << 20));
    // Nobody comes: one by one they go, down to the least, and stay gone.
    assert!(
        within(LONG, || figure(&server, WANTED, "") == 1 && server.workers().len() == 1 + WATCHES),
        "{}",
        server.log()
    );
    assert_eq!(figure(&server, READY, ""), 1);
    assert!(!server.log().contains("ended before it had a client"), "{}", server.log());
    Program::new("vector_add").through(&server).expect_success("vector_add");
}

#[test]
fn more_than_the_most_never_wait() {
    let server = serve_between("0-2", &["--warm-for", "600"]);
    assert!(server.workers().is_empty());
    assert_eq!(burst(&server, 8).len(), 8);
    assert!(
        within(Duration::from_secs(60), || figure(&server, READY, "") == 2),
        "{}",
        server.log()
    );
    // The one that this takes is replaced after all that the burst has raised.
    Program::new("vector_add").through(&server).expect_success("vector_add");
    assert!(
        within(Duration::from_secs(60), || {
            figure(&server, READY, "") == 2 && server.workers().len() == 2 + WATCHES
        }),
        "{}",
        server.log()
    );
    assert_eq!(figure(&server, WANTED, ""), 2, "{}", server.log());
}

/// Neither who is not let in nor who has as many sessions as an owner may have makes the server
/// hold more memory.
#[test]
fn who_is_refused_raises_nothing() {
    let folder = Folder::create();
    let strangers =
        serve_between("1-4", &["--require-authentication", "--state", &folder.path("state")]);
    assert_eq!(burst(&strangers, 16).len(), 0);
    assert_eq!((figure(&strangers, WANTED, ""), figure(&strangers, GIVEN, "")), (1, 0));
    let limited = serve_between("1-4", &["--owner-sessions", "2"]);
    for _ in 0..4 {
        let held: Vec<_> =
            (0..8).filter_map(|_| RawClient::connect_to(limited.address()).ok()).collect();
        assert_eq!(held.len(), 2);
        drop(held);
        assert!(within(Duration::from_secs(20), || figure(&limited, "outboard_sessions", "") == 0));
    }
    assert_eq!(figure(&limited, WANTED, ""), 2);
}
