//! Segments between a writer and readers, and files that are none.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use memfile::Memory;
use statseg::layout::{HEADER_BYTES, MAGIC, NAME_WORDS, STACK_COUNTERS_MAX, VERSION};
use statseg::{Board, Counters, Cycle, JoinError, Layout, Segment, State, Totals};

const LAYOUT: Layout = Layout { threads: 3, groups: 128, batch_max: 64 };
/// Cycles of the thread that writes beside a reader.
const CYCLES: u64 = if cfg!(miri) { 200 } else { 200_000 };

fn segment() -> Arc<Segment> {
    Segment::create("statseg-test", &LAYOUT).expect("memory")
}

#[test]
#[cfg_attr(miri, ignore = "maps a memory file")]
fn a_reader_sees_what_threads_and_controllers_tell() {
    let segment = segment();
    let reading = Segment::join(segment.descriptor().expect("a descriptor")).expect("a segment");
    assert_eq!(reading.layout(), LAYOUT);
    assert_eq!(reading.homes(), vec![None; 128], "nobody has said it");
    for thread in 0..3 {
        let board = segment.board(thread).expect("there is one");
        board.set_state(State::Parked);
        board.set_processor((thread > 0).then_some(usize::from(thread)));
        board.tell(&Totals { steals: u64::from(thread), connections: 9, ..Totals::default() });
        board.enter_application(5);
        board.begin(4);
        let packets: Vec<u64> = (0..200).map(|group| group * u64::from(thread)).collect();
        segment.tell_groups(thread, &packets);
    }
    segment.set_home(127, 2);
    segment.set_home(3, 0);
    let threads = reading.threads();
    let told: Vec<_> =
        threads.iter().map(|thread| (thread.processor, thread.totals.steals)).collect();
    assert_eq!(told, [(None, 0), (Some(1), 1), (Some(2), 2)]);
    assert!(
        threads
            .iter()
            .all(|thread| thread.state == State::Parked && thread.totals.connections == 9)
    );
    assert!(threads.iter().all(|one| (one.in_application_since_ns, one.last_cycle_ns) == (5, 4)));
    segment.board(0).expect("there is one").leave_application();
    assert_eq!(reading.thread(0).map(|thread| thread.in_application_since_ns), Some(0));
    let groups = reading.groups();
    assert_eq!((groups.len(), groups[0], groups[127]), (128, 0, 3 * 127));
    let homes = reading.homes();
    assert_eq!((homes[127], homes[3], homes[4]), (Some(2), Some(0), None));
    assert!(reading.thread(3).is_none() && segment.board(3).is_none());
    // Nothing that is said of what there is not goes anywhere.
    let before = (reading.groups(), reading.homes());
    segment.tell_groups(3, &[1; 128]);
    segment.set_home(128, 0);
    assert_eq!((reading.groups(), reading.homes()), before);
}

#[test]
#[cfg_attr(miri, ignore = "maps a memory file")]
fn counters_of_stacks_have_names_that_any_format_takes() {
    let segment = segment();
    let reading = Segment::join(segment.descriptor().expect("a descriptor")).expect("a segment");
    assert!(reading.stack_names().is_empty(), "no thread has named them");
    let long = "a".repeat(8 * NAME_WORDS);
    let longest = &long[1..];
    segment.name_stack(&["tcp_in", "\x1b[2J", longest, &long, "", "Big", "a b", "udp4"]);
    let named = [(0, "tcp_in"), (2, longest), (7, "udp4")];
    assert_eq!(reading.stack_names(), named.map(|(at, name)| (at, name.to_owned())));
    segment.name_stack(&vec!["all"; STACK_COUNTERS_MAX + 9]);
    assert_eq!(reading.stack_names().len(), STACK_COUNTERS_MAX);
    let board = segment.board(1).expect("there is one");
    board.tell_stack(1..1_000);
    let seen = reading.thread(1).expect("there is one").stack;
    assert_eq!((seen[0], seen[STACK_COUNTERS_MAX - 1]), (1, STACK_COUNTERS_MAX as u64));
    assert!(reading.thread(2).expect("there is one").stack.iter().all(|count| *count == 0));
}

#[test]
fn a_reader_beside_a_writing_thread_sees_time_go_forward() {
    let words = statseg::words();
    let (board, over) = (Board::over(&words), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for cycle in 0..CYCLES {
                board.begin(cycle);
                let cycle =
                    Cycle { queue_packets: 3, taken_packets: 2, busy_ns: 5, ..Cycle::default() };
                board.busy(&cycle);
                board.idle(1);
            }
            over.store(true, Ordering::Release);
        });
        let mut last = Counters::default();
        let mut looks = 0u64;
        loop {
            let is_over = over.load(Ordering::Acquire);
            let now = board.snapshot().counters(0);
            assert!(now.packets >= last.packets && now.busy_ns >= last.busy_ns);
            assert!(now.idle_ns >= last.idle_ns && now.busy_cycles >= last.busy_cycles);
            (last, looks) = (now, looks + 1);
            if is_over {
                break;
            }
        }
        assert!(looks > 0);
        assert_eq!((last.packets, last.queue_packets), (2 * CYCLES, 3 * CYCLES));
        assert_eq!((last.busy_ns, last.idle_ns), (5 * CYCLES, CYCLES));
    });
}

/// A sealed memory file of so many bytes that begins with these words.
fn file(bytes: usize, words: &[u64]) -> OwnedFd {
    let memory = Memory::create_for_readers("statseg-test", bytes).expect("memory");
    for (at, word) in words.iter().enumerate() {
        assert!(memory.copy_in(8 * at, &word.to_le_bytes()));
    }
    memory.descriptor().expect("a descriptor")
}

#[test]
#[cfg_attr(miri, ignore = "maps a memory file")]
fn files_that_are_no_segment_are_refused_with_what_was_found() {
    let bytes = LAYOUT.bytes();
    let good = [MAGIC, VERSION, bytes as u64, 3, 128, 64];
    Segment::join(file(bytes, &good)).expect("this is one");
    let with = |at: usize, word: u64| {
        let mut header = good;
        header[at] = word;
        header
    };
    for (bytes, header, parts) in [
        (bytes, with(0, 0x1234), ["begins with", "0x0000000000001234"]),
        (bytes, with(1, 7), ["version 7", &*format!("version {VERSION}")]),
        (bytes, with(3, 0), ["0 threads", "1 to 128"]),
        (bytes, with(3, 1 << 40), ["1099511627776 threads", "1 to 128"]),
        (bytes, with(4, 5_000), ["5000 flow groups", "1 to 4096"]),
        (bytes, with(5, 0), ["B = 0", "1 to"]),
        (bytes, with(3, 9), [&*format!("it has {bytes} bytes where"), "belong to what it says"]),
        (bytes - 4_096, good, ["bytes where", &*bytes.to_string()]),
        (HEADER_BYTES - 8, good, ["no statistics segment", "it has 2168 bytes"]),
        (16 << 20, good, ["no statistics segment", "it has 16777216 bytes"]),
    ] {
        let error = Segment::join(file(bytes, &header)).expect_err("no segment").to_string();
        for part in parts {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "opens files")]
fn files_that_could_be_cut_short_while_they_are_read_are_refused() {
    let path = std::env::temp_dir().join(format!("tailplane-statseg-{}", std::process::id()));
    std::fs::write(&path, vec![0; LAYOUT.bytes()]).expect("written");
    let plain = std::fs::File::open(&path).expect("a file");
    let refused = Segment::join(plain.into()).expect_err("an ordinary file");
    std::fs::remove_file(&path).expect("it was there");
    assert!(matches!(refused, JoinError::NotSealed), "{refused}");
    let null = std::fs::File::open("/dev/null").expect("the null device");
    let refused = Segment::join(null.into()).expect_err("a device");
    assert!(matches!(refused, JoinError::NotSealed), "{refused}");
}

#[test]
#[cfg_attr(miri, ignore = "maps a memory file")]
fn words_that_make_no_sense_harm_nobody() {
    let layout = Layout { threads: 1, groups: 2, batch_max: 1 };
    let memory = Memory::create_for_readers("statseg-test", layout.bytes()).expect("memory");
    assert!(memory.copy_in(0, &vec![0xff; layout.bytes()]));
    for (at, word) in [MAGIC, VERSION, 0, 1, 2, 1].into_iter().enumerate() {
        assert!(memory.copy_in(8 * at, &word.to_le_bytes()));
    }
    let reading =
        Segment::join(memory.descriptor().expect("a descriptor")).expect("it looks right");
    let thread = reading.thread(0).expect("there is one");
    assert_eq!(
        (thread.state, thread.processor),
        (State::Unknown, usize::try_from(u64::MAX - 1).ok())
    );
    assert_eq!(thread.counters(u64::MAX).idle_ns, (u64::MAX - 1) & !(1 << 63));
    assert_eq!((reading.groups(), reading.homes()), (vec![u64::MAX; 2], vec![None; 2]));
}

#[test]
#[cfg_attr(miri, ignore = "maps a memory file")]
fn a_reader_cannot_write_and_no_layout_is_made_that_there_is_not() {
    let segment = segment();
    let joined = Memory::join(segment.descriptor().expect("a descriptor"), LAYOUT.bytes());
    assert!(joined.is_err(), "sealed against further writers");
    let refused = Segment::create("statseg-test", &Layout { threads: 0, ..LAYOUT });
    assert!(refused.is_err_and(|error| error.to_string().contains("threads: 0")));
}

/// A folder of a file system (FUSE) whose process answers nothing, as a descriptor that can be passed (`O_PATH`), and
/// the file system's own end. None, which is printed, where that cannot be mounted.
fn silent_file() -> Option<(OwnedFd, OwnedFd)> {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let device = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let Ok(device) = device else {
        println!("skipped: needs root and /dev/fuse");
        return None;
    };
    let folder = std::env::temp_dir().join(format!("statseg-silent-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder of this test");
    let number = std::os::fd::AsRawFd::as_raw_fd(&device);
    let data = format!("fd={number},rootmode=40000,user_id=0,group_id=0");
    let data = std::ffi::CString::new(data).expect("no zeroes");
    let mounted = mount("silent", &folder, "fuse", MountFlags::empty(), data.as_c_str());
    let file = mounted.map(|()| {
        let file = open(&folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        unmount(&folder, UnmountFlags::DETACH).expect("it was mounted");
        file.expect("a path needs no answer")
    });
    std::fs::remove_dir(&folder).expect("a folder of this test");
    match file {
        Ok(file) => Some((file, device)),
        Err(errno) => {
            println!("skipped: cannot mount a FUSE file system: {errno}");
            None
        }
    }
}

/// The kernel asks the other process for the size and the kind of such a file, for as long as that likes.
#[test]
#[cfg_attr(miri, ignore = "mounts a file system")]
fn a_file_whose_file_system_never_answers_is_refused_at_once() {
    const WITHIN: std::time::Duration = std::time::Duration::from_secs(2);
    let Some((file, device)) = silent_file() else { return };
    let again = file.try_clone().expect("a descriptor");
    let (sender, refusals) = std::sync::mpsc::channel();
    let asking = std::thread::spawn(move || {
        let of_memory = Memory::join_untrusted(again, 4_096).map(|_| ());
        let of_segment = Segment::join(file).map(|_| ());
        // A test that has failed does not listen.
        let _ = sender.send((of_memory, of_segment));
    });
    let refused = refusals.recv_timeout(WITHIN);
    // Ends all questions that are not answered.
    drop(device);
    asking.join().expect("no panic");
    let (of_memory, of_segment) = refused.expect("an answer in time");
    assert!(of_memory.is_err_and(|error| error.kind() == std::io::ErrorKind::InvalidData));
    assert!(matches!(of_segment, Err(JoinError::NotSealed)), "{of_segment:?}");
}
