//! Large messages of device memory between ranks of MPI: their bytes pass no client.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use outboard_e2e::mpi::{MPIS, each_mpi, mpirun, outboard, written};
use outboard_e2e::{
    Driver, Folder, PATIENCE, Server, outboard as run_outboard, reaching_loopback, within,
};
use outboard_test_support::skip;
use serde_json::Value;

const SAID: &str = "large messages went everywhere\n";

fn server(flags: &[&str]) -> Server {
    let flags = [&["--driver", Driver::chosen().name()], flags].concat();
    Server::start_with(&reaching_loopback(&flags), &[])
}

/// Four ranks of the program on two servers, two on each.
fn ranks(mpi: &Path, servers: &[Server; 2], argument: &str) -> Command {
    ranks_of(mpi, 4, servers, &["messages_mpi", argument])
}

/// So many ranks of a program, with its argument, on two servers.
fn ranks_of(mpi: &Path, many: u32, servers: &[Server; 2], [name, argument]: &[&str; 2]) -> Command {
    let list = format!("{},{}:by-rank", servers[0].address(), servers[1].address());
    let (outboard, program) = (outboard(), mpi.join(name).display().to_string());
    mpirun(mpi, many, &[&*outboard, "run", "--mpi", "--server", &list, "--", &program, argument])
}

/// What each rank has counted.
fn counted(mut ranks: Command) -> Vec<Value> {
    let folder = Folder::create();
    ranks.env("OUTBOARD_PROFILE", folder.path("%p"));
    assert_eq!(written(ranks), SAID);
    let files = std::fs::read_dir(folder.path(".")).expect("it is there").flatten();
    let read = |file: std::fs::DirEntry| std::fs::read(file.path()).expect("a profile");
    let all: Vec<Value> =
        files.map(|file| serde_json::from_slice(&read(file)).expect("JSON")).collect();
    all.into_iter().filter(|one| one["message_bytes_sent"].is_u64()).collect()
}

fn sum(counted: &[Value], name: &str) -> u64 {
    counted.iter().map(|one| one[name].as_u64().unwrap_or_else(|| panic!("{name}: {one}"))).sum()
}

/// All bytes went from worker to worker: the clients had headers, and the commands.
fn expect_headers_only(counted: &[Value]) {
    assert_eq!(counted.len(), 4);
    let (sent, received) =
        (sum(counted, "message_bytes_sent"), sum(counted, "message_bytes_received"));
    assert!(sent == received && sent > 40 << 20, "{counted:?}");
    for one in ["bytes_to_device", "bytes_from_device"] {
        assert!(sum(counted, one) < sent / 100, "{one}: {counted:?}");
    }
}

fn expect_both(ran: usize) {
    if ran < MPIS.len() {
        skip!("{ran} of {} MPIs are laid out by `cargo xtask mpi`", MPIS.len());
    }
}

#[test]
fn whatever_order_mpi_finds_for_them_they_arrive() {
    expect_both(each_mpi(|mpi| {
        let servers = [server(&[]), server(&[])];
        assert_eq!(written(ranks(mpi, &servers, "all")), SAID, "{}", mpi.display());
    }));
}

#[test]
fn their_bytes_pass_no_client() {
    expect_both(each_mpi(|mpi| {
        let servers = [server(&[]), server(&[])];
        let mut ranks = ranks(mpi, &servers, "bytes");
        ranks.env("OUTBOARD_TRANSPORT", if mpi.ends_with(MPIS[0]) { "tcp" } else { "shm" });
        expect_headers_only(&counted(ranks));
    }));
}

#[test]
fn between_encrypted_sessions_they_are_encrypted() {
    let folder = Folder::create();
    let state = folder.path("state");
    let made = run_outboard(&["token", "create", "--json", "--owner", "a", "--state", &state]);
    let made: Value = serde_json::from_slice(&made.stdout).expect("JSON");
    let part = |name: &str| made[name].as_str().expect("a text").to_owned();
    let (fingerprint, token) = (part("fingerprint"), part("token"));
    let strict = ["--tls", "on", "--require-authentication", "--state", &state];
    let servers = [server(&strict), server(&strict)];
    each_mpi(|mpi| {
        if mpi.ends_with(MPIS[0]) {
            let mut ranks = ranks(mpi, &servers, "bytes");
            ranks.env("OUTBOARD_TLS_FINGERPRINT", &fingerprint).env("OUTBOARD_TOKEN", &token);
            ranks.env("OUTBOARD_TRANSPORT", "tcp");
            expect_headers_only(&counted(ranks));
        }
    });
}

#[test]
fn servers_that_cannot_connect_leave_them_to_mpi() {
    let far = ["--peers", "192.0.2.0/24"];
    let servers = [server(&far), server(&far)];
    each_mpi(|mpi| {
        if !mpi.ends_with(MPIS[0]) {
            return;
        }
        let mut apart = ranks(mpi, &servers, "bytes");
        apart.env("OUTBOARD_TRANSPORT", "tcp");
        let apart = counted(apart);
        assert_eq!(sum(&apart, "message_bytes_sent"), 0);
        assert!(sum(&apart, "bytes_to_device") > 20 << 20);
        for one in &apart {
            let why = one["messages_not_linked"].as_str().expect("a sentence");
            assert!(why.contains("--peers"), "{why}");
        }
    });
}

/// The calls of Fortran do not pass through the library, so that rank must be sent no headers.
#[test]
fn a_rank_that_speaks_fortran_gets_messages_by_mpi() {
    const RANK: &str = "[ $OMPI_COMM_WORLD_RANK = 1 ] && export LD_PRELOAD=$0; exec \"$@\"";
    let servers = [server(&[]), server(&[])];
    each_mpi(|mpi| {
        let fortran = mpi.join("../debian/usr/lib/x86_64-linux-gnu/libmpi_mpifh.so.40");
        if !mpi.ends_with(MPIS[0]) || !fortran.is_file() {
            return;
        }
        let list = format!("{},{}:by-rank", servers[0].address(), servers[1].address());
        let (outboard, program) = (outboard(), mpi.join("messages_mpi").display().to_string());
        let fortran = fortran.display().to_string();
        let begin = ["sh", "-c", RANK, &fortran];
        let run = [&*outboard, "run", "--mpi", "--server", &list, "--", &program, "bytes"];
        let counted = counted(mpirun(mpi, 4, &[&begin[..], &run].concat()));
        let silent = counted.iter().filter(|one| {
            one["message_bytes_sent"] == 0_u64 && one["message_bytes_received"] == 0_u64
        });
        assert_eq!(silent.count(), 1, "{counted:?}");
        assert!(sum(&counted, "message_bytes_sent") > 10 << 20, "{counted:?}");
    });
}

/// Each lie ends the job or makes its ranks wait, as a rank that sends nothing does. It changes no
/// memory beside a buffer, and nothing is left of it when the job has been ended.
#[test]
fn a_rank_that_lies_hurts_its_own_job_alone() {
    let servers = [server(&[]), server(&[])];
    each_mpi(|mpi| {
        if !mpi.ends_with(MPIS[0]) {
            return;
        }
        for (lie, comes) in [
            ("twice", "message 0: received"),
            ("longer", "message 0: refused"),
            ("shorter", "the link between the servers is lost"),
            ("endless", "message 1: refused"),
            ("number", ""),
            ("link", "the link between the servers is lost"),
            ("own", "the link between the servers is lost"),
        ] {
            let mut ranks = ranks_of(mpi, 2, &servers, &["liars_mpi", lie]);
            // The program that `mpirun` starts has a group of its own with all that it starts.
            let mut job = ranks.process_group(0).spawn().expect("it starts");
            within(Duration::from_secs(6), || job.try_wait().expect("it is a child").is_some());
            let group = rustix::process::Pid::from_child(&job);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
            assert!(within(PATIENCE, || job.try_wait().expect("it is a child").is_some()), "{lie}");
            let said = job.wait_with_output().expect("it has ended");
            let said = format!("{said:?}");
            assert!(!said.contains("was changed") && !said.contains("no header"), "{lie}: {said}");
            assert!(said.contains(comes) && !said.contains("panicked"), "{lie}: {said}");
            for server in &servers {
                let is_idle = || {
                    let listed =
                        run_outboard(&["sessions", "--json", "--server", server.address()]);
                    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
                    listed["sessions"].as_array().is_some_and(Vec::is_empty)
                };
                assert!(within(PATIENCE, is_idle), "{lie}: {}", server.log());
            }
        }
        assert_eq!(written(self::ranks(mpi, &servers, "bytes")), SAID);
    });
}

#[test]
fn if_a_server_is_lost_the_job_ends() {
    each_mpi(|mpi| {
        if !mpi.ends_with(MPIS[0]) {
            return;
        }
        let mut servers = [server(&[]), server(&[])];
        let mut ranks = ranks(mpi, &servers, "forever").spawn().expect("it starts");
        let mut out = std::io::BufReader::new(ranks.stdout.take().expect("it is piped"));
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).expect("it says something");
        assert_eq!(line, "under way\n");
        let workers = servers[0].workers();
        servers[0].kill();
        for worker in workers {
            let worker = rustix::process::Pid::from_raw(worker as i32).expect("a process");
            let _ = rustix::process::kill_process(worker, rustix::process::Signal::KILL);
        }
        let began = Instant::now();
        let mut status = None;
        within(Duration::from_secs(40), || {
            status = ranks.try_wait().expect("it is a child");
            status.is_some()
        });
        let _ = ranks.kill();
        let took = began.elapsed();
        assert!(status.is_some_and(|status| !status.success()), "{status:?} after {took:?}");
        // The other server has nothing left of it.
        let gone = within(PATIENCE, || {
            let log = servers[1].log();
            log.matches("session ends").count() >= 2
        });
        assert!(gone, "{}", servers[1].log());
    });
}
