//! Workers that wait for their clients.

use std::time::{Duration, Instant};

use outboard_client::link::handshake;
use outboard_transport::Transport;
use outboard_transport::tcp::Tcp;
use outboard_wire::handshake::Purpose;

use super::parts::*;
use super::scenarios::works;

macro_rules! scenarios {
    ($($name:ident)*) => {
        pub(crate) const ALL: &[(&str, fn())] = &[$((stringify!($name), $name)),*];
    };
}

scenarios! {
    a_warm_worker_is_taken_and_replaced
    a_burst_beyond_the_warm_workers_is_served
    a_warm_worker_that_dies_is_replaced
    warm_workers_that_cannot_live_are_tried_ever_more_slowly
    warm_workers_end_with_their_server
    a_probe_takes_no_warm_worker
}

/// Waits until that many workers are there, and names them.
fn workers(server: &Part, count: usize) -> Vec<u32> {
    wait_until("so many workers", || server.children().len() == count);
    server.children()
}

fn a_warm_worker_is_taken_and_replaced() {
    let server = serve_warm(2);
    let warm = workers(&server, 2);
    let (first, worker) = connect(&server.first_line, vec![]).unwrap();
    assert!(warm.contains(&worker), "{worker} of {warm:?}");
    works(&first);
    let (second, other) = connect(&server.first_line, vec![]).unwrap();
    assert!(warm.contains(&other) && other != worker, "{other} of {warm:?}");
    works(&second);
    let all = workers(&server, 4);
    assert!(all.contains(&worker) && all.contains(&other));
    drop((first, second));
    wait_until("the workers' end", || !runs(worker) && !runs(other));
    // Those that wait stay.
    assert_eq!(workers(&server, 2).len(), 2);
}

fn a_burst_beyond_the_warm_workers_is_served() {
    let server = serve_warm(2);
    let warm = workers(&server, 2);
    let served = std::thread::scope(|scope| {
        let client = || {
            let (link, worker) = connect(&server.first_line, vec![]).unwrap();
            works(&link);
            (link, worker)
        };
        let clients: Vec<_> = (0..12).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    let mut own: Vec<u32> = served.iter().map(|(_, worker)| *worker).collect();
    own.sort_unstable();
    own.dedup();
    assert_eq!(own.len(), 12, "each client has a worker of its own");
    assert!(warm.iter().all(|worker| own.contains(worker)), "{warm:?} of {own:?}");
    workers(&server, 14);
}

fn a_warm_worker_that_dies_is_replaced() {
    let server = serve_warm(1);
    let dead = workers(&server, 1)[0];
    kill(dead, libc::SIGKILL);
    // The session that comes in this very moment is served like any other.
    let (link, worker) = connect(&server.first_line, vec![]).unwrap();
    assert_ne!(worker, dead);
    works(&link);
    assert!(!workers(&server, 2).contains(&dead));
}

fn warm_workers_that_cannot_live_are_tried_ever_more_slowly() {
    // However many clients come: whoever wants more of what cannot be started gets no more tries.
    let server = Part::start(&["supervisor", "1-8", "dies"]);
    let clients: Vec<_> = (0..8).map(|_| connect(&server.first_line, vec![]).unwrap()).collect();
    drop(clients);
    wait_until("the sessions' end", || server.children().len() <= 1);
    let until = Instant::now() + Duration::from_millis(4500);
    let mut seen = std::collections::BTreeSet::new();
    while Instant::now() < until {
        seen.extend(server.children());
        std::thread::sleep(Duration::from_millis(1));
    }
    // At most four at once, before the first is known to have died, one after a second and one
    // after two more, and a session's that was still there. Some may have been too quick to be
    // seen.
    assert!(seen.len() <= 7, "{seen:?}");
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    works(&link);
}

fn warm_workers_end_with_their_server() {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let mut server = serve_warm(2);
        let warm = workers(&server, 2);
        server.signal(signal);
        let status = server.child.wait().unwrap();
        assert_eq!(status.code(), (signal == libc::SIGTERM).then_some(0), "{status}");
        wait_until("the workers' end", || warm.iter().all(|worker| !runs(*worker)));
    }
}

fn a_probe_takes_no_warm_worker() {
    let server = serve_warm(1);
    let warm = workers(&server, 1)[0];
    let probe = || {
        let stream = Tcp.connect(&server.first_line, PATIENCE).unwrap();
        process(
            &handshake(&*stream, "server", &hello(Purpose::Probe), Instant::now() + PATIENCE)
                .unwrap(),
        )
    };
    // While it is getting ready, another one tells.
    wait_until("an answer of the warm worker's", || probe() == warm);
    for _ in 0..10 {
        assert_eq!(probe(), warm);
    }
    assert_eq!(workers(&server, 1), [warm]);
    let (link, worker) = connect(&server.first_line, vec![]).unwrap();
    assert_eq!(worker, warm);
    works(&link);
}
