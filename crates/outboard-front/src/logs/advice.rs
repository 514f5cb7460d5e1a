//! What an error usually means for a program, and what to do about it.

use outboard_abi::CUresult;

/// A sentence for those errors of which more can be said than their text does.
pub(super) fn of(error: CUresult) -> Option<&'static str> {
    Some(match error {
        CUresult::CUDA_ERROR_INVALID_VALUE => {
            "an argument is out of its range, or a pointer that must not be null is; compare them with the documentation of the function"
        }
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            "there is not as much free memory; cuMemGetInfo tells how much there is, and others may share the device"
        }
        CUresult::CUDA_ERROR_NOT_INITIALIZED => {
            "cuInit has not succeeded in this process; a forked child cannot use what its parent has initialised: start a new program"
        }
        CUresult::CUDA_ERROR_DEINITIALIZED => "the process is about to end; do this before",
        CUresult::CUDA_ERROR_NO_DEVICE => {
            "no server with a device was found, or CUDA_VISIBLE_DEVICES hides all; `outboard devices` shows what there is"
        }
        CUresult::CUDA_ERROR_INVALID_DEVICE => {
            "there is no device with this number; cuDeviceGetCount tells how many there are"
        }
        CUresult::CUDA_ERROR_INVALID_IMAGE => {
            "the image is no fat binary, cubin or PTX, or it is damaged"
        }
        CUresult::CUDA_ERROR_INVALID_CONTEXT => {
            "no context is current to this thread, or the handle is none; make one current with cuCtxSetCurrent"
        }
        CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU => {
            "the image holds nothing for this device; build it with PTX, or with code for the device's compute capability"
        }
        CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
            "the PTX is newer than the driver; update the server's driver, or compile with an older toolkit"
        }
        CUresult::CUDA_ERROR_FILE_NOT_FOUND => {
            "the file cannot be read on this machine, whose files alone are read"
        }
        CUresult::CUDA_ERROR_INVALID_HANDLE => {
            "an argument is no live object of its kind, or of another context"
        }
        CUresult::CUDA_ERROR_NOT_FOUND => "there is nothing of this name",
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS => {
            "a kernel accessed an address that is not allocated; the context can only be destroyed; run under compute-sanitizer where the device is"
        }
        CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES => {
            "the launch needs more registers, threads or shared memory than the device has for a block"
        }
        CUresult::CUDA_ERROR_LAUNCH_FAILED => {
            "a kernel was ended by the device; the context can only be destroyed; earlier launches may be the cause"
        }
        CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED => {
            "the context of the object, or the current one, has been destroyed"
        }
        CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => {
            "the connection to the server is gone, and with it all that was on the device; start the program again once the server is there"
        }
        CUresult::CUDA_ERROR_SYSTEM_NOT_READY => {
            "the server that OUTBOARD_SERVER names did not serve; `outboard doctor` or OUTBOARD_LOG=1 say why"
        }
        CUresult::CUDA_ERROR_NOT_SUPPORTED => "the device, or its driver, does not have this",
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED => {
            "this cannot be done while a stream is captured, and has ended the capture"
        }
        _ => return None,
    })
}
