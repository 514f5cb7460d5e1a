//! Programs that Open MPI and MPICH start, each rank with a device of its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use outboard_e2e::mpi::{MPIS, each_mpi, mpirun, outboard, written};
use outboard_e2e::{Folder, PATIENCE, Program, Server, programs, within};
use outboard_test_support::skip;

/// Has the programs' ranks use devices of the list.
fn expect_right(mpi: &Path, list: &str) {
    for (program, said) in [
        ("jacobi_mpi", "4 ranks agree with the host; devices of each: 1 1 1 1\n"),
        ("roots_mpi", "4 ranks: the mean is 0.6670\n"),
    ] {
        let program = mpi.join(program).display().to_string();
        let rank =
            [outboard().as_str(), "run", "--server", list, "--", &program].map(str::to_owned);
        let rank: Vec<&str> = rank.iter().map(String::as_str).collect();
        assert_eq!(written(mpirun(mpi, 4, &rank)), said, "{}", mpi.display());
    }
}

fn sessions(server: &Server) -> usize {
    let log = server.log();
    let starts = log.lines().filter(|line| line.contains("session starts"));
    starts.filter(|line| line.contains("kind\":\"Session")).count()
}

#[test]
fn each_rank_has_a_device_of_two_servers() {
    let ran = each_mpi(|mpi| {
        let servers = [Server::start(), Server::start()];
        let list = format!("{},{}:by-rank", servers[0].address(), servers[1].address());
        expect_right(mpi, &list);
        // Two ranks of each program.
        for server in &servers {
            assert!(within(PATIENCE, || sessions(server) == 4), "{}", server.log());
        }
        // The ranks find their devices themselves, too.
        let program = mpi.join("roots_mpi").display().to_string();
        let mut whole = Command::new(outboard());
        whole.args(["run", "--server", &list, "--"]).arg(mpi.join("mpirun"));
        whole.args(["-n", "4", &program]).env("OUTBOARD_CONFIG", "none").stdin(Stdio::null());
        whole.stdout(Stdio::piped()).stderr(Stdio::piped());
        assert_eq!(written(whole), "4 ranks: the mean is 0.6670\n");
        for server in &servers {
            assert!(within(PATIENCE, || sessions(server) == 6), "{}", server.log());
        }
    });
    if ran < MPIS.len() {
        skip!("{ran} of {} MPIs are laid out by `cargo xtask mpi`", MPIS.len());
    }
}

#[test]
fn device_memory_goes_by_an_mpi_that_knows_none() {
    let ran = each_mpi(|mpi| {
        let servers = [Server::start(), Server::start()];
        let list = format!("{},{}:by-rank", servers[0].address(), servers[1].address());
        for (program, argument, said) in [
            ("jacobi_mpi", "device", "4 ranks agree with the host; devices of each: 1 1 1 1\n"),
            ("device_pointers_mpi", "", "device memory went everywhere\n"),
        ] {
            let (outboard, program) = (outboard(), mpi.join(program).display().to_string());
            let run = [&*outboard, "run", "--mpi", "--server", &list, "--", &program, argument];
            assert_eq!(written(mpirun(mpi, 4, &run)), said, "{}", mpi.display());
        }
        // The programs do nothing else with it: without device memory, all is as it was.
        let (outboard, program) = (outboard(), mpi.join("roots_mpi").display().to_string());
        let run = [&*outboard, "run", "--mpi", "--server", &list, "--", &program];
        assert_eq!(written(mpirun(mpi, 2, &run)), "2 ranks: the mean is 0.6665\n");
    });
    if ran < MPIS.len() {
        skip!("{ran} of {} MPIs are laid out by `cargo xtask mpi`", MPIS.len());
    }
}

/// Both MPIs leave their messages to UCX here, and this UCX asks CUDA what a buffer is.
#[test]
fn a_cuda_aware_transport_carries_device_memory() {
    let Some(ucx) = programs().parent().map(|target| target.join("mpi/ucx/libucx/lib")) else {
        return;
    };
    if !ucx.is_dir() {
        skip!("`cargo xtask mpi` has laid out no UCX");
    }
    const RANK: &str = "LD_LIBRARY_PATH=$1:$LD_LIBRARY_PATH UCX_MODULE_DIR=$1/ucx \
                        exec \"$2\" run --server \"$3\" -- \"$4\" device";
    let ran = each_mpi(|mpi| {
        let servers = [Server::start(), Server::start()];
        let list = format!("{},{}:by-rank", servers[0].address(), servers[1].address());
        let (outboard, program) = (outboard(), mpi.join("jacobi_mpi").display().to_string());
        let ucx = ucx.display().to_string();
        let mut command =
            mpirun(mpi, 4, &["sh", "-c", RANK, "sh", &ucx, &outboard, &list, &program]);
        // MPICH of Debian's uses UCX anyway.
        command.env("OMPI_MCA_pml", "ucx");
        assert_eq!(written(command), "4 ranks agree with the host; devices of each: 1 1 1 1\n");
    });
    if ran < MPIS.len() {
        skip!("{ran} of {} MPIs are laid out by `cargo xtask mpi`", MPIS.len());
    }
}

#[test]
fn a_cuda_aware_mpi_learns_that_it_is_to_copy_through_host_memory() {
    let outcome = Program::new("mpi_questions").through(&Server::start());
    outcome.expect_success("mpi_questions");
    assert_eq!(outcome.stdout, "a CUDA-aware MPI copies through host memory\n");
}

/// Servers that `mpirun` starts, in the background.
struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_job_starts_its_servers_itself() {
    let ran = each_mpi(|mpi| {
        let folder = Folder::create();
        let meeting = folder.path("servers");
        let serve = outboard();
        let serve = [
            &*serve,
            "serve",
            "--driver",
            "cpu",
            "--warm",
            "0",
            "--once",
            "--once-after",
            "3",
            "--rendezvous",
            &meeting,
            "--listen",
            "127.0.0.1:0",
        ];
        let mut servers = mpirun(mpi, 2, &serve);
        servers.stdout(Stdio::null()).stderr(Stdio::null());
        let mut servers = Job(servers.spawn().expect("mpirun starts"));
        expect_right(mpi, &format!("@{meeting}:wait:by-rank"));
        // The servers end by themselves, and mpirun with them.
        let mut status = None;
        let ended = within(Duration::from_secs(30), || {
            status = servers.0.try_wait().expect("it is a child");
            status.is_some()
        });
        assert!(ended && status.is_some_and(|status| status.success()), "{status:?}");
        assert_eq!(std::fs::read_dir(&meeting).expect("it is there").count(), 0);
    });
    if ran < MPIS.len() {
        skip!("{ran} of {} MPIs are laid out by `cargo xtask mpi`", MPIS.len());
    }
}
