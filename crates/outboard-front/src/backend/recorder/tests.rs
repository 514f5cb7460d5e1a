//! The recorder records, fails and answers as it is told.

use outboard_abi::CUresult;

use super::Recorder;
use crate::backend::{
    Arrays, Backend, ContextId, DeviceId, DevicePtr, Graphs, ObjectId, Pools, Sharing, Statistics,
    StreamId,
};

const CTX: ContextId = ContextId(7);

fn calls(recorder: &Recorder) -> Vec<String> {
    recorder.calls().iter().map(ToString::to_string).collect()
}

#[test]
fn calls_are_kept_in_order_with_their_arguments() {
    let recorder = Recorder::leak();
    recorder.stream_create(CTX, ObjectId(3), 1, -2).expect("nothing is to fail");
    recorder
        .event_record(CTX, ObjectId(4), StreamId::created(ObjectId(3)), 0)
        .expect("nothing is to fail");
    assert!(matches!(recorder.statistics(), Statistics::Unused {}));
    assert_eq!(
        calls(recorder),
        [
            "stream_create(ctx: ContextId(7), stream: ObjectId(3), flags: 1, priority: -2)",
            "event_record(ctx: ContextId(7), event: ObjectId(4), stream: StreamId(3), flags: 0)",
            "statistics()",
        ]
    );
}

#[test]
fn the_call_that_is_to_fail_fails_and_no_other() {
    let recorder = Recorder::leak();
    recorder.fail("memory_alloc", 2, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    let outcomes: Vec<_> = (0..3).map(|_| recorder.memory_alloc(CTX, 256).map(drop)).collect();
    assert_eq!(outcomes, [Ok(()), Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY), Ok(())]);
    assert_eq!(recorder.memory_free(CTX, DevicePtr(4096)), Ok(()));
    assert_eq!(recorder.calls().len(), 4, "a call that fails is a call");
}

#[test]
fn answers_are_plausible_or_what_they_were_set_to() {
    let recorder = Recorder::leak();
    let addresses = [(); 3]
        .map(|()| recorder.pool_alloc(CTX, ObjectId(1), 8, StreamId::LEGACY).expect("it answers"));
    assert!(
        addresses.is_sorted_by(|a, b| a < b)
            && addresses.iter().all(|address| address.is_multiple_of(256))
    );
    assert_eq!(recorder.graph_memory_trim(CTX, DeviceId::new(0)), Ok(()));
    assert!(recorder.export_pool(DeviceId::new(0), ObjectId(1)).is_ok());
    assert_eq!(
        recorder
            .array_memory_requirements(CTX, ObjectId(1), false, DeviceId::new(0))
            .map(|(bytes, _)| bytes > 0),
        Ok(true)
    );

    recorder.answer_with("memory_info", (5u64, 9u64));
    recorder.answer_with("module_functions", vec!["add".to_owned()]);
    assert_eq!(recorder.memory_info(CTX), Ok((5, 9)));
    assert_eq!(recorder.memory_info(CTX), Ok((5, 9)));
    assert_eq!(recorder.module_functions(CTX, ObjectId(2)), Ok(vec!["add".to_owned()]));
}

#[test]
#[should_panic(expected = "a back end has no method memory_aloc")]
fn a_method_that_is_not_there_is_found_out() {
    Recorder::leak().fail("memory_aloc", 1, CUresult::CUDA_ERROR_UNKNOWN);
}

#[test]
#[should_panic(expected = "memory_alloc answers a outboard_wire::names::DevicePtr")]
fn an_answer_of_another_type_is_found_out() {
    let recorder = Recorder::leak();
    recorder.answer_with("memory_alloc", 4096u32);
    let _ = recorder.memory_alloc(CTX, 1);
}
