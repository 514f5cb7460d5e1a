//! The pool is told in pages.

use crate::world::{World, ask, asker, request, server};
use outboard_broker::desk::Rules;
use outboard_pool::api::{PoolView, Told};
use outboard_pool::words::Use;

#[test]
fn all_of_a_pool_is_told_in_pages_each_of_them_bounded() {
    const SERVERS: usize = 150;
    let servers = (0..SERVERS).map(|number| (server(number, 64), 0)).collect();
    let mut world = World::new(Rules::default(), servers);
    (0..SERVERS).for_each(|at| world.beat(at, false).unwrap());
    for number in 0..SERVERS * 64 / 200 {
        world.ask(request(&format!("owner{number}"), 200, Use::Exclusive, 0)).unwrap();
    }
    // Nothing is left for these.
    for number in 0..5000 {
        let owner = format!("waits{number}");
        let asked = ask(request(&owner, 1, Use::Exclusive, 600));
        world.desk.ask(asked, asker(&owner), world.now).unwrap();
    }
    let whole = world.desk.view("");
    assert!(whole.next.is_none() && whole.queue.len() == 5000);
    let page = world.desk.page("", &Told::default());
    let devices: usize = page.servers.iter().map(|server| server.devices.len()).sum();
    let leased: usize = page.leases.iter().map(|lease| lease.devices.len()).sum();
    assert!(devices <= 4096 && leased <= 4096, "{devices} {leased}");
    assert!(page.queue.len() <= 4096 && page.owners.len() <= 4096);
    let (mut told, mut pages) = (page, 1);
    while let Some(after) = told.next.clone() {
        // As a client says it.
        let after: Told = after.to_string().parse().unwrap();
        let next: PoolView = world.desk.page("", &after);
        assert!(serde_json::to_vec(&next).unwrap().len() < 8 << 20);
        told.append(next);
        pages += 1;
    }
    assert_eq!(told, whole);
    assert!(pages >= 3, "{pages}");
}
