//! Leases of jobs: which nodes get them.

use crate::world::{World, ask, asker, request, server};
use outboard_broker::desk::{Kind, Rules};
use outboard_pool::api::Ask;
use outboard_pool::words::{LeaseNumber, Node, NodeName, Purpose, Use};
use std::collections::BTreeSet;

const JOB: &str = "slurm.blue.7";

fn two_devices() -> World {
    let mut world = World::new(Rules::default(), vec![(server(0, 2), 0)]);
    world.beat(0, false).unwrap();
    world.beat(0, false).unwrap();
    world
}

fn nodes(names: &[&str]) -> BTreeSet<NodeName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn job(owner: &str, devices: u32) -> Ask {
    let purpose = Some(JOB.parse().unwrap());
    Ask { purpose, ..ask(request(owner, devices, Use::Exclusive, 60)) }
}

fn on(world: &World, node: &str, job: &str) -> Option<LeaseNumber> {
    let job: Purpose = job.parse().unwrap();
    world.desk.job_on(&Node::of(node).unwrap(), &job)
}

#[test]
fn a_jobs_lease_is_for_its_nodes_and_for_no_others() {
    let mut world = two_devices();
    let on_two = nodes(&["n1", "n2"]);
    let now = world.now;
    world.desk.ask_for_job(job("ada", 1), on_two, asker("slurm"), now).unwrap();
    world.settle();
    world.restart_broker();
    let lease = Some(LeaseNumber(1));
    assert_eq!((on(&world, "n1@slurm", JOB), on(&world, "n2@slurm", JOB)), (lease, lease));
    // Another node, another cluster's node of that name, the job's user and its asker.
    for other in ["n3@slurm", "n1@red", "n1@ada", "slurm@slurm"] {
        assert_eq!(on(&world, other, JOB), None, "{other}");
    }
    assert_eq!(on(&world, "n1@slurm", "slurm.blue.8"), None);
    world.desk.end(LeaseNumber(1), "", world.now).unwrap();
    assert_eq!(on(&world, "n1@slurm", JOB), None, "it is over");
}

#[test]
fn a_lease_without_nodes_is_for_none() {
    let mut world = two_devices();
    world.desk.ask(job("ada", 1), asker("slurm"), world.now).unwrap();
    assert_eq!(on(&world, "n1@slurm", JOB), None);
}

#[test]
fn a_job_that_waits_has_nothing_for_its_nodes() {
    let mut world = two_devices();
    world.ask(request("bob", 2, Use::Exclusive, 60)).unwrap();
    let now = world.now;
    world.desk.ask_for_job(job("ada", 1), nodes(&["n1"]), asker("slurm"), now).unwrap();
    assert_eq!(on(&world, "n1@slurm", JOB), None);
}

#[test]
fn who_asks_again_for_a_job_asks_for_the_same_nodes() {
    let mut world = two_devices();
    let ask = |world: &mut World, names: &[&str]| {
        world.desk.ask_for_job(job("ada", 1), nodes(names), asker("slurm"), world.now)
    };
    ask(&mut world, &["n1"]).unwrap();
    ask(&mut world, &["n1"]).unwrap();
    for others in [&["n2"][..], &["n1", "n2"], &[]] {
        let no = ask(&mut world, others).unwrap_err();
        assert_eq!(no.kind, Kind::Unavailable);
        assert!(no.sentence.contains("is for other nodes"), "{no}");
    }
    world.settle();
    assert_eq!(world.memory.leases.len(), 1);
}
