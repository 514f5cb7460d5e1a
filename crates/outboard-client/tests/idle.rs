//! Alone in its process, so that the threads it finds are its own.

use std::sync::Arc;
use std::time::Duration;

use outboard_client::link::{Config, Link};
use outboard_transport::{Stream, pipe};
use outboard_wire::ContextId;

/// Context switches of the link's threads so far, and their processor time in nanoseconds; none if
/// they have not started yet.
fn activity() -> Option<(u64, u64)> {
    let (mut switches, mut time) = (0, 0);
    let mut found = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        if !std::fs::read_to_string(path.join("comm")).unwrap().starts_with("outboard-") {
            continue;
        }
        found += 1;
        let status = std::fs::read_to_string(path.join("status")).unwrap();
        for line in status.lines() {
            if let Some((name, count)) = line.split_once(':')
                && name.ends_with("ctxt_switches")
            {
                switches += count.trim().parse::<u64>().unwrap();
            }
        }
        let times = std::fs::read_to_string(path.join("schedstat")).unwrap();
        time += times.split(' ').next().unwrap().parse::<u64>().unwrap();
    }
    (found > 0).then_some((switches, time))
}

#[test]
fn an_idle_link_does_nothing_at_all() {
    let (client, server): (Arc<dyn Stream>, _) = pipe::pair().unwrap();
    let link = Link::start(client, Config::default(), Box::new(|_, _| ())).unwrap();
    link.post(1, ContextId::NONE, |_| ()).unwrap();
    link.flush().unwrap();
    // After its last work it spins for a moment and looks round once; then it must stay quiet for a
    // while.
    let mut before = activity();
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(300));
        let after = activity();
        if after.is_some() && after == before {
            drop(server);
            return;
        }
        before = after;
    }
    panic!("the link's threads never come to rest");
}
