use outboard_wire::limits::WINDOW;

use super::*;

const CHUNK: u32 = 1 << 20;

fn upload(table: &mut Table, chunks: u32) -> (u64, Arc<Outcome>) {
    let outcome = Arc::new(Outcome::default());
    let cut = Cut::new(u64::from(chunks) * u64::from(CHUNK), CHUNK).unwrap();
    let transfer = table.open_upload(cut, &outcome, &Arc::default()).unwrap();
    table.start_upload(transfer, HostBytes::from(std::ptr::null_mut::<u8>()), false);
    (transfer, outcome)
}

#[test]
fn transfers_take_turns_and_wait_for_grants_alone() {
    let mut table = Table::default();
    let window = WINDOW as u32 / CHUNK;
    let (blocked, _) = upload(&mut table, window + 1);
    for index in 0..window {
        let job = table.next_job(None).unwrap();
        assert_eq!((job.transfer, job.index), (blocked, index));
    }
    assert!(table.next_job(None).is_none(), "the window is used up");
    let (other, outcome) = upload(&mut table, 2);
    let first = table.next_job(None).unwrap();
    assert_eq!(first.transfer, other, "another transfer goes on");
    table.grant(blocked, window + 1);
    let second = table.next_job(None).unwrap();
    assert_eq!((second.transfer, second.index), (blocked, window), "it takes its turn");
    let third = table.next_job(None).unwrap();
    assert!(!table.job_written(&first, true));
    assert_eq!(outcome.get(), None);
    assert!(table.job_written(&third, true));
    assert_eq!(outcome.get(), Some(End::Complete));
}

#[test]
fn staging_memory_is_bounded_until_released() {
    let mut table = Table::default();
    let large: Vec<u64> = (0..UPLOADS / WINDOW).map(|_| upload(&mut table, 1000).0).collect();
    let outcome = Arc::default();
    let cut = Cut::new(CHUNK.into(), CHUNK).unwrap();
    let taken = Arc::default();
    assert_eq!(table.open_upload(cut, &outcome, &taken), None);
    table.release(large[0], true);
    let last = table.open_upload(cut, &outcome, &taken).unwrap();
    table.release(large[0], true);
    assert!(table.used <= UPLOADS, "releasing twice counts once");
    assert_eq!(taken.get(), None);
    table.release(last, false);
    assert_eq!(taken.get(), Some(End::Cancelled), "it came to nothing");
}

#[test]
fn a_cancelled_download_waits_for_what_was_sent() {
    let mut table = Table::default();
    let outcome = Arc::new(Outcome::default());
    let cut = Cut::new(5 * u64::from(CHUNK), CHUNK).unwrap();
    let transfer =
        table.open_download(cut, HostBytes::from(std::ptr::null_mut::<u8>()), Vec::new(), &outcome);
    table.downloads.cancel(transfer, 1);
    assert_eq!(outcome.get(), None, "its first chunk is still on its way");
    table.downloads.begin_chunk(transfer, 0, CHUNK).unwrap().unwrap();
    table.downloads.end_chunk(transfer, 0, true);
    assert_eq!(outcome.get(), Some(End::Cancelled));
}

#[test]
fn bytes_are_needed_until_the_worker_has_them() {
    let mut table = Table::default();
    let (transfer, outcome) = upload(&mut table, 2);
    let (first, second) = (table.next_job(None).unwrap(), table.next_job(None).unwrap());
    assert!(!table.job_written(&first, false) && table.job_written(&second, false));
    assert!(table.is_written(transfer));
    assert!(!table.job_has_come(&second));
    assert!(table.begin_again(&first), "it was lost on its way");
    table.job_has_come(&first);
    assert_eq!(outcome.get(), None, "a thread still reads it");
    table.job_written(&first, false);
    assert_eq!(outcome.get(), Some(End::Complete));
    assert!(!table.begin_again(&second));

    let (transfer, outcome) = upload(&mut table, 1);
    let only = table.next_job(None).unwrap();
    table.job_written(&only, false);
    assert_eq!(outcome.get(), None);
    table.release(transfer, true);
    assert_eq!(outcome.get(), Some(End::Complete), "what the device has has come");
}

#[test]
fn a_chunk_that_broke_off_may_come_again() {
    let mut table = Table::default();
    let outcome = Arc::new(Outcome::default());
    let cut = Cut::new(CHUNK.into(), CHUNK).unwrap();
    let transfer =
        table.open_download(cut, HostBytes::from(std::ptr::null_mut::<u8>()), Vec::new(), &outcome);
    table.downloads.begin_chunk(transfer, 0, CHUNK).unwrap().unwrap();
    assert!(table.downloads.begin_chunk(transfer, 0, CHUNK).unwrap().is_err());
    assert!(!table.downloads.end_chunk(transfer, 0, false));
    table.downloads.begin_chunk(transfer, 0, CHUNK).unwrap().unwrap();
    assert!(table.downloads.end_chunk(transfer, 0, true));
    assert_eq!(outcome.get(), Some(End::Complete));
}

#[test]
fn memory_in_use_by_a_thread_is_not_given_back() {
    let mut table = Table::default();
    let outcome = Arc::new(Outcome::default());
    let cut = Cut::new(2 * u64::from(CHUNK), CHUNK).unwrap();
    let transfer =
        table.open_download(cut, HostBytes::from(std::ptr::null_mut::<u8>()), Vec::new(), &outcome);
    table.downloads.begin_chunk(transfer, 0, CHUNK).unwrap().unwrap();
    let (_, idle) = upload(&mut table, 1);
    let (_, busy) = upload(&mut table, 1);
    table.next_job(None).unwrap();
    let job = table.next_job(None).unwrap();
    table.job_written(&job, true);
    assert_eq!(busy.get(), Some(End::Complete));
    table.lose();
    assert_eq!((outcome.get(), idle.get()), (None, None), "threads are still at work on both");
    table.downloads.end_chunk(transfer, 0, false);
    assert_eq!(outcome.get(), Some(End::Lost));
    assert!(table.next_job(None).is_none());
}

#[test]
fn a_transfer_that_is_queued_takes_no_staging_memory() {
    let mut table = Table::default();
    let large: Vec<u64> = (0..UPLOADS / WINDOW).map(|_| upload(&mut table, 1000).0).collect();
    let cut = Cut::new(CHUNK.into(), CHUNK).unwrap();
    assert_eq!(table.open_upload(cut, &Arc::default(), &Arc::default()), None);
    assert!(!table.is_stuck());
    table.set_stuck();
    assert!(table.is_stuck());
    let queued = table.open_queued_upload(cut, &Arc::default(), &Arc::default());
    assert_eq!(table.used, UPLOADS);
    table.release(queued, true);
    assert!(table.is_stuck(), "it gave no staging memory back");
    table.release(large[0], true);
    assert!(!table.is_stuck());
    assert!(table.open_upload(cut, &Arc::default(), &Arc::default()).is_some());
}

#[test]
fn a_direction_is_busy_while_a_transfer_goes_that_way() {
    let mut table = Table::default();
    let busy = |table: &Table| [Direction::Up, Direction::Down].map(|way| table.is_busy(way));
    assert_eq!(busy(&table), [false, false]);
    let (up, _) = upload(&mut table, 1);
    assert_eq!(busy(&table), [true, false]);
    let cut = Cut::new(CHUNK.into(), CHUNK).unwrap();
    let to = HostBytes::from(std::ptr::null_mut::<u8>());
    table.open_download(cut, to, Vec::new(), &Arc::default());
    table.next_job(None).map(|job| table.job_written(&job, true));
    assert!(!table.uploads.contains_key(&up));
    assert_eq!(busy(&table), [false, true]);
}
