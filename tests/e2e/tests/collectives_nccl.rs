//! Collectives of NVIDIA's NCCL, on GPUs. `OUTBOARD_TEST_NCCL` names the library, a
//! `libnccl.so.2`; without it, and on the software device, these tests are skipped.

use outboard_e2e::{Driver, Folder, Program, Server, list, reaching_loopback};
use outboard_test_support::skip;

/// Multicast over NVLink needs a machine of one's own.
const NO_MULTICAST: (&str, &str) = ("NCCL_NVLS_ENABLE", "0");

fn nccl() -> Option<String> {
    let library = std::env::var("OUTBOARD_TEST_NCCL").ok()?;
    (Driver::chosen() == Driver::Nvidia).then_some(library)
}

/// A server with some of the GPUs, by number.
fn server(library: &str, gpus: &str, env: &[(&str, &str)]) -> Server {
    let own = [NO_MULTICAST, ("CUDA_VISIBLE_DEVICES", gpus)];
    let flags = ["--driver", Driver::Nvidia.name(), "--nccl", library];
    Server::start_with(&reaching_loopback(&flags), &[&own[..], env].concat())
}

/// Each program of the collectives, by one process with all devices and by a process for each.
fn run_on_two_servers(one: &Server, other: &Server) {
    let both = list(&[one, other]);
    for how in ["all", "threads", "not_blocking"] {
        Program::new("collectives").arg(how).through_list(&both).expect_success(how);
    }
    for how in ["threads", "group"] {
        let captured = Program::new("collectives_captured").arg(how);
        captured.through_list(&both).expect_success(how);
    }
    let folder = Folder::create();
    let rank = |(rank, server): (usize, &Server)| {
        let program = Program::new("collectives").arg("rank").arg(&folder.path("id"));
        program.arg(&rank.to_string()).arg("2").start_through(server)
    };
    let running: Vec<_> = [one, other].into_iter().enumerate().map(rank).collect();
    for rank in running {
        rank.finish().expect_success("a rank");
    }
}

/// NCCL refuses two ranks on one GPU, unless it takes their servers for two machines.
#[test]
fn one_gpu_is_two_ranks_of_servers_that_call_themselves_two_machines() {
    let Some(library) = nccl() else { skip!("OUTBOARD_TEST_NCCL names no NCCL") };
    let [one, other] = ["one", "other"].map(|host| server(&library, "0", &[("NCCL_HOSTID", host)]));
    run_on_two_servers(&one, &other);
    let same = [(); 2].map(|()| server(&library, "0", &[]));
    let refused = Program::new("collectives").arg("all").through_list(&list(&same.each_ref()));
    assert!(!refused.status.success(), "{refused:?}");
    assert!(refused.stdout.contains("GPU"), "{refused:?}");
}

#[test]
fn two_gpus_are_two_ranks() {
    let Some(library) = nccl() else { skip!("OUTBOARD_TEST_NCCL names no NCCL") };
    let both = server(&library, "0,1", &[]);
    if both.devices() < 2 {
        skip!("this machine has one GPU");
    }
    run_on_two_servers(&server(&library, "0", &[]), &server(&library, "1", &[]));
    for how in ["all", "threads", "not_blocking", "errors"] {
        Program::new("collectives").arg(how).through(&both).expect_success(how);
    }
    for how in ["threads", "group"] {
        Program::new("collectives_captured").arg(how).through(&both).expect_success(how);
    }
}
