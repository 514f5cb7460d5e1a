//! Waiting for messages that are under way.

use std::ffi::c_int;

use crate::mpi::{Handle, Requests, SUCCESS, Status, Statuses, form, real};
use crate::requests;

/// The requests that a call is about, as they were before it, and where it writes their statuses.
struct Asked {
    requests: Vec<u64>,
    statuses: Statuses,
}

impl Asked {
    /// None if no device memory is under way.
    ///
    /// # Safety
    /// There are so many requests, and so many statuses if there are any.
    unsafe fn before(array: Requests, count: c_int, statuses: Status, all: c_int) -> Option<Asked> {
        // SAFETY: as the caller says.
        let read = || unsafe { form().requests(array, count) };
        requests::are_there()
            .then(|| Asked { requests: read(), statuses: Statuses::new(statuses, all) })
    }

    fn status(asked: &Option<Asked>, given: Status) -> Status {
        asked.as_ref().map_or(given, |asked| asked.statuses.get(0))
    }

    /// The request in a place is done, and its status is in another place. What the call returns.
    fn done(&self, place: c_int, status: usize) -> c_int {
        let place = usize::try_from(place).ok();
        let request = place.and_then(|place| self.requests.get(place));
        request.map_or(SUCCESS, |request| requests::done(*request, self.statuses.get(status)))
    }

    fn all_done(&self) -> c_int {
        worst((0..self.requests.len()).map(|place| self.done(place as c_int, place)))
    }
}

/// The first of several results that is an error, after all have been found out.
fn worst(results: impl Iterator<Item = c_int>) -> c_int {
    results.fold(SUCCESS, |worst, result| if worst == SUCCESS { result } else { worst })
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Wait(request: Requests, status: Status) -> c_int {
    // SAFETY: it is one request, and the rest is the caller's.
    unsafe {
        let asked = Asked::before(request, 1, status, 1);
        let told = Asked::status(&asked, status);
        let result = real!(c"PMPI_Wait", fn(Requests, Status))(request, told);
        if let (SUCCESS, Some(asked)) = (result, asked) {
            return asked.all_done();
        }
        result
    }
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Test(request: Requests, flag: *mut c_int, status: Status) -> c_int {
    // SAFETY: it is one request, and the rest is the caller's.
    unsafe {
        let asked = Asked::before(request, 1, status, 1);
        let told = Asked::status(&asked, status);
        let result = real!(c"PMPI_Test", fn(Requests, *mut c_int, Status))(request, flag, told);
        if let (SUCCESS, Some(asked)) = (result, asked)
            && *flag != 0
        {
            return asked.all_done();
        }
        result
    }
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Waitall(count: c_int, array: Requests, statuses: Status) -> c_int {
    // SAFETY: the caller says how many there are.
    unsafe {
        let asked = Asked::before(array, count, statuses, count);
        let told = Asked::status(&asked, statuses);
        let result = real!(c"PMPI_Waitall", fn(c_int, Requests, Status))(count, array, told);
        if let (SUCCESS, Some(asked)) = (result, asked) {
            return asked.all_done();
        }
        result
    }
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Testall(
    count: c_int,
    array: Requests,
    flag: *mut c_int,
    statuses: Status,
) -> c_int {
    // SAFETY: the caller says how many there are.
    unsafe {
        let asked = Asked::before(array, count, statuses, count);
        let told = Asked::status(&asked, statuses);
        let call = real!(c"PMPI_Testall", fn(c_int, Requests, *mut c_int, Status));
        let result = call(count, array, flag, told);
        if let (SUCCESS, Some(asked)) = (result, asked)
            && *flag != 0
        {
            return asked.all_done();
        }
        result
    }
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Waitany(
    count: c_int,
    array: Requests,
    index: *mut c_int,
    status: Status,
) -> c_int {
    // SAFETY: the caller says how many there are.
    unsafe {
        let asked = Asked::before(array, count, status, 1);
        let told = Asked::status(&asked, status);
        let call = real!(c"PMPI_Waitany", fn(c_int, Requests, *mut c_int, Status));
        let result = call(count, array, index, told);
        if let (SUCCESS, Some(asked)) = (result, asked) {
            return asked.done(*index, 0);
        }
        result
    }
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Testany(
    count: c_int,
    array: Requests,
    index: *mut c_int,
    flag: *mut c_int,
    status: Status,
) -> c_int {
    // SAFETY: the caller says how many there are.
    unsafe {
        let asked = Asked::before(array, count, status, 1);
        let told = Asked::status(&asked, status);
        let call = real!(c"PMPI_Testany", fn(c_int, Requests, *mut c_int, *mut c_int, Status));
        let result = call(count, array, index, flag, told);
        if let (SUCCESS, Some(asked)) = (result, asked)
            && *flag != 0
        {
            return asked.done(*index, 0);
        }
        result
    }
}

/// Functions that say of several which are done.
macro_rules! some {
    ($($name:ident $real:literal),*) => {$(
        /// # Safety
        /// As MPI says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            count: c_int, array: Requests, done: *mut c_int, indices: *mut c_int, statuses: Status,
        ) -> c_int {
            // SAFETY: the caller says how many there are, and MPI how many indices it has written.
            unsafe {
                let asked = Asked::before(array, count, statuses, count);
                let told = Asked::status(&asked, statuses);
                let call = real!($real, fn(c_int, Requests, *mut c_int, *mut c_int, Status));
                let result = call(count, array, done, indices, told);
                if let (SUCCESS, Some(asked)) = (result, asked) {
                    let count = usize::try_from(*done).unwrap_or(0).min(asked.requests.len());
                    return worst((0..count).map(|place| asked.done(*indices.add(place), place)));
                }
                result
            }
        }
    )*};
}
some!(MPI_Waitsome c"PMPI_Waitsome", MPI_Testsome c"PMPI_Testsome");

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Request_get_status(
    request: Handle,
    flag: *mut c_int,
    status: Status,
) -> c_int {
    let statuses = Statuses::new(status, 1);
    let told = statuses.get(0);
    // SAFETY: a status is there, and the rest is the caller's.
    unsafe {
        let ask = real!(c"PMPI_Request_get_status", fn(Handle, *mut c_int, Status));
        let result = ask(request, flag, told);
        if result == SUCCESS && *flag != 0 && requests::are_there() {
            requests::look(form().number(request), told);
        }
        result
    }
}
