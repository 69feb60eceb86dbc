//! packetdrill's interface in C: a table of functions that take what `libc`'s of the same names take, behind a pointer of
//! ours.
//!
//! Each function turns its pointers into slices, once, and calls safe code; what it fills it writes by pointer. What makes that sound is
//! packetdrill's contract, which is that of the system calls: a pointer is null or points to as many bytes as the length
//! beside it says, which nothing else touches during the call; the first argument is the `userdata` of the table.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_long, c_short, c_ulong, c_void};
use std::io::Write;
use std::{mem, ptr, slice};

use clock::{Duration, Instant};
use sockets::message::MSG_TRUNC;
use sockets::option::{SO_LINGER, SOL_SOCKET, SOL_TCP, TCP_INFO};
use sockets::{EpollEvent, EpollOperation, Errno, PollFd, Sockets};

use crate::machine::Machine;
use crate::plugin::Plugin;
use crate::{address, info, settings};

/// What `gettimeofday` says when the machine begins: scripts reckon from their first event.
const EPOCH_SECONDS: u64 = 1_600_000_000;
/// Bytes that one call reads at most.
const MOST: usize = 1 << 24;

type Raw = *mut c_void;
type Length = libc::socklen_t;
type Vector = *const libc::iovec;

macro_rules! interface {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty,)*) => {
        /// packetdrill's table, in its order.
        // SAFETY: the caller of these keeps the contract of the module's comment.
        #[repr(C)]
        #[expect(missing_docs, reason = "named after the system calls")]
        pub struct Interface {
            pub userdata: Raw,
            pub free: unsafe extern "C" fn(Raw),
            $(pub $name: unsafe extern "C" fn(Raw, $($argument),*) -> $result,)*
        }

        impl Interface {
            fn new(userdata: Raw) -> Self {
                Self { userdata, free, $($name,)* }
            }
        }
    };
}

interface! {
    socket: fn(c_int, c_int, c_int) -> c_int,
    bind: fn(c_int, *const u8, Length) -> c_int,
    listen: fn(c_int, c_int) -> c_int,
    accept: fn(c_int, *mut u8, *mut Length) -> c_int,
    connect: fn(c_int, *const u8, Length) -> c_int,
    read: fn(c_int, *mut u8, usize) -> isize,
    readv: fn(c_int, Vector, c_int) -> isize,
    recv: fn(c_int, *mut u8, usize, c_int) -> isize,
    recvfrom: fn(c_int, *mut u8, usize, c_int, *mut u8, *mut Length) -> isize,
    recvmsg: fn(c_int, *mut libc::msghdr, c_int) -> isize,
    write: fn(c_int, *const u8, usize) -> isize,
    writev: fn(c_int, Vector, c_int) -> isize,
    send: fn(c_int, *const u8, usize, c_int) -> isize,
    sendto: fn(c_int, *const u8, usize, c_int, *const u8, Length) -> isize,
    sendmsg: fn(c_int, *const libc::msghdr, c_int) -> isize,
    fcntl: fn(c_int, c_int, c_long) -> c_int,
    ioctl: fn(c_int, c_ulong, *mut c_int) -> c_int,
    close: fn(c_int) -> c_int,
    shutdown: fn(c_int, c_int) -> c_int,
    getsockopt: fn(c_int, c_int, c_int, *mut u8, *mut Length) -> c_int,
    setsockopt: fn(c_int, c_int, c_int, *const u8, Length) -> c_int,
    poll: fn(*mut libc::pollfd, libc::nfds_t, c_int) -> c_int,
    netdev_send: fn(*const u8, usize) -> c_int,
    netdev_receive: fn(*mut u8, *mut usize, *mut i64) -> c_int,
    usleep: fn(u32) -> c_int,
    gettimeofday: fn(*mut libc::timeval, Raw) -> c_int,
    epoll_create: fn(c_int) -> c_int,
    epoll_ctl: fn(c_int, c_int, c_int, *mut libc::epoll_event) -> c_int,
    epoll_wait: fn(c_int, *mut libc::epoll_event, c_int, c_int) -> c_int,
    pipe: fn(*mut c_int) -> c_int,
    splice: fn(c_int, *mut i64, c_int, *mut i64, usize, u32) -> isize,
}

// SAFETY: the thread and its wire hold `Rc`s, all of them inside of the machine, whose only door is the plug-in's lock: one
// thread at a time touches them, and none leaves.
unsafe impl Send for Machine {}

/// Fills the table. Flags that are wrong end the process, as packetdrill does with wrong options.
///
/// # Safety
/// `flags` is null or a string, `interface` points to a table.
// SAFETY: no other object that packetdrill loads has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(
    flags: *const c_char,
    interface: *mut Interface,
) {
    let flags = match flags.is_null() {
        true => c"",
        // SAFETY: the caller's promise.
        false => unsafe { CStr::from_ptr(flags) },
    };
    let config = settings::parse(&flags.to_string_lossy()).unwrap_or_else(|error| {
        complain(&error);
        std::process::exit(1);
    });
    let plugin = Box::new(Plugin::new(Machine::new(config)));
    // SAFETY: the caller's promise. Nothing is there that would have to be dropped.
    unsafe { interface.write(Interface::new(Box::into_raw(plugin).cast())) };
}

/// Frees `userdata`. No other thread may be in a call, asleep or not: packetdrill joins its own before.
unsafe extern "C" fn free(userdata: Raw) {
    // SAFETY: it is what `packetdrill_interface_init` made, and the last call. Chunks of packet memory that connections
    // hold go with the pool.
    drop(unsafe { Box::from_raw(userdata.cast::<Plugin>()) });
}

/// # Safety
/// The module's comment.
unsafe fn plugin<'a>(userdata: Raw) -> &'a Plugin {
    // SAFETY: `packetdrill_interface_init` made it, and `free` is the last call.
    unsafe { &*userdata.cast::<Plugin>() }
}

/// # Safety
/// The module's comment.
unsafe fn bytes<'a>(start: *const u8, len: usize) -> &'a [u8] {
    match start.is_null() {
        true => &[],
        // SAFETY: the module's comment.
        false => unsafe { slice::from_raw_parts(start, len) },
    }
}

/// Copies to memory of C, which nothing may have initialised, as much as there is room for. How much that is.
///
/// # Safety
/// The module's comment.
unsafe fn copy(value: &[u8], room: *mut u8, len: usize) -> usize {
    let count = if room.is_null() { 0 } else { value.len().min(len) };
    // SAFETY: the module's comment; nothing of ours is there.
    unsafe { ptr::copy_nonoverlapping(value.as_ptr(), room, count) };
    count
}

/// Fills a value and its length, as `getsockopt` and `accept` do: what has no room is cut.
///
/// # Safety
/// The module's comment.
unsafe fn fill(value: &[u8], room: *mut u8, len: *mut Length, whole_len: bool) {
    if room.is_null() || len.is_null() {
        return;
    }
    // SAFETY: the module's comment.
    let count = unsafe { copy(value, room, len.read() as usize) };
    // SAFETY: the module's comment.
    unsafe { len.write(if whole_len { value.len() } else { count } as Length) };
}

/// Says why the process ends.
fn complain(why: &str) {
    // Nothing is left to do where that fails.
    let _ = writeln!(std::io::stderr(), "{why}");
}

fn set_errno(number: c_int) {
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() = number };
}

fn result<T>(outcome: Result<T, Errno>, value: impl FnOnce(T) -> isize) -> isize {
    match outcome {
        Ok(found) => value(found),
        Err(errno) => {
            set_errno(errno.number());
            -1
        }
    }
}

fn status(outcome: Result<(), Errno>) -> c_int {
    result(outcome, |()| 0) as c_int
}

// SAFETY: the module's comment.
unsafe extern "C" fn socket(data: Raw, family: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the module's comment.
    let plugin = unsafe { plugin(data) };
    result(plugin.call(|sockets| sockets.socket(family, kind, protocol)), |fd| fd as isize) as c_int
}

unsafe extern "C" fn bind(data: Raw, fd: c_int, local: *const u8, len: Length) -> c_int {
    // SAFETY: the module's comment.
    let (plugin, local) = unsafe { (plugin(data), bytes(local, len as usize)) };
    let local = address::read(local).ok_or(Errno::EAFNOSUPPORT);
    status(local.and_then(|local| plugin.call(|sockets| sockets.bind(fd, local))))
}

unsafe extern "C" fn listen(data: Raw, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the module's comment.
    let plugin = unsafe { plugin(data) };
    status(plugin.call(|sockets| sockets.listen(fd, backlog)))
}

unsafe extern "C" fn accept(data: Raw, fd: c_int, peer: *mut u8, len: *mut Length) -> c_int {
    // SAFETY: the module's comment.
    let plugin = unsafe { plugin(data) };
    let accepted = plugin.call(|sockets| sockets.accept(fd, 0));
    result(accepted, |(number, found)| {
        // SAFETY: the module's comment.
        unsafe { fill(&address::write(found), peer, len, true) };
        number as isize
    }) as c_int
}

unsafe extern "C" fn connect(data: Raw, fd: c_int, peer: *const u8, len: Length) -> c_int {
    // SAFETY: the module's comment.
    let (plugin, peer) = unsafe { (plugin(data), bytes(peer, len as usize)) };
    let peer = address::read(peer).ok_or(Errno::EAFNOSUPPORT);
    status(peer.and_then(|peer| plugin.call(|sockets| sockets.connect(fd, peer))))
}

// SAFETY: the module's comment.
unsafe extern "C" fn read(data: Raw, fd: c_int, buffer: *mut u8, len: usize) -> isize {
    // SAFETY: the module's comment.
    unsafe { recv(data, fd, buffer, len, 0) }
}

unsafe extern "C" fn recv(data: Raw, fd: c_int, to: *mut u8, len: usize, flags: c_int) -> isize {
    // SAFETY: the module's comment.
    unsafe { recvfrom(data, fd, to, len, flags, ptr::null_mut(), ptr::null_mut()) }
}

unsafe extern "C" fn recvfrom(
    data: Raw,
    fd: c_int,
    buffer: *mut u8,
    len: usize,
    flags: c_int,
    peer: *mut u8,
    peer_len: *mut Length,
) -> isize {
    let place = libc::iovec { iov_base: buffer.cast(), iov_len: len };
    let mut message = message(&raw const place, 1);
    if !peer.is_null() && !peer_len.is_null() {
        // SAFETY: the module's comment.
        (message.msg_name, message.msg_namelen) = (peer.cast(), unsafe { peer_len.read() });
    }
    // SAFETY: the module's comment.
    let received = unsafe { recvmsg(data, fd, &raw mut message, flags) };
    if received >= 0 && !message.msg_name.is_null() {
        // SAFETY: the module's comment.
        unsafe { peer_len.write(message.msg_namelen) };
    }
    received
}

unsafe extern "C" fn readv(data: Raw, fd: c_int, vector: Vector, count: c_int) -> isize {
    // SAFETY: the module's comment.
    unsafe { recvmsg(data, fd, &mut message(vector, count), 0) }
}

/// Reads into several places: into one buffer first, as one call.
unsafe extern "C" fn recvmsg(
    data: Raw,
    fd: c_int,
    message: *mut libc::msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: the module's comment.
    let (plugin, places) = unsafe { (plugin(data), places(message)) };
    let flags = flags as u32;
    let places = match places {
        Ok(places) => places,
        Err(errno) => return result(Err::<(), _>(errno), |()| 0),
    };
    let lens = places.iter().map(|place| place.iov_len);
    let len = lens.fold(0, usize::saturating_add).min(MOST);
    let (mut buffer, mut done) = (vec![0; len], 0);
    let received = plugin.call(|sockets| sockets.receive_rest(fd, &mut buffer, flags, &mut done));
    result(received, |received| {
        // Of a stream they are taken without being copied.
        let is_copied = flags & MSG_TRUNC == 0 || received.from.is_some();
        let mut rest = if is_copied { &buffer[..received.bytes.min(len)] } else { &[] };
        for place in places {
            // SAFETY: the module's comment.
            rest = &rest[unsafe { copy(rest, place.iov_base.cast(), place.iov_len) }..];
        }
        let from = received.from.map_or(Vec::new(), address::write);
        // SAFETY: the module's comment.
        unsafe {
            fill(&from, (*message).msg_name.cast(), &raw mut (*message).msg_namelen, true);
            ((*message).msg_controllen, (*message).msg_flags) = (0, received.flags as c_int);
        }
        received.bytes as isize
    })
}

/// A message of these places, without a peer.
fn message(vector: Vector, count: c_int) -> libc::msghdr {
    // SAFETY: a message of zeros has no places and no peer.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (vector.cast_mut(), count.max(0) as _);
    message
}

/// The places that a message names.
///
/// # Errors
/// `EFAULT` where one is nowhere.
///
/// # Safety
/// The module's comment.
unsafe fn places<'a>(message: *const libc::msghdr) -> Result<&'a [libc::iovec], Errno> {
    // SAFETY: the module's comment.
    let (vector, count) = unsafe { ((*message).msg_iov, (*message).msg_iovlen) };
    let places = match vector.is_null() {
        true if count > 0 => return Err(Errno::EFAULT),
        true => &[],
        // SAFETY: the module's comment.
        false => unsafe { slice::from_raw_parts(vector, count) },
    };
    let is_nowhere = |place: &libc::iovec| place.iov_base.is_null() && place.iov_len > 0;
    if places.iter().any(is_nowhere) { Err(Errno::EFAULT) } else { Ok(places) }
}

unsafe extern "C" fn write(data: Raw, fd: c_int, start: *const u8, len: usize) -> isize {
    // SAFETY: the module's comment.
    unsafe { send(data, fd, start, len, 0) }
}

unsafe extern "C" fn send(
    data: Raw,
    fd: c_int,
    from: *const u8,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the module's comment.
    unsafe { sendto(data, fd, from, len, flags, ptr::null(), 0) }
}

unsafe extern "C" fn sendto(
    data: Raw,
    fd: c_int,
    start: *const u8,
    len: usize,
    flags: c_int,
    peer: *const u8,
    peer_len: Length,
) -> isize {
    let place = libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len };
    let mut message = message(&raw const place, 1);
    (message.msg_name, message.msg_namelen) = (peer.cast_mut().cast(), peer_len);
    // SAFETY: the module's comment.
    unsafe { sendmsg(data, fd, &raw const message, flags) }
}

unsafe extern "C" fn writev(data: Raw, fd: c_int, vector: Vector, count: c_int) -> isize {
    // SAFETY: the module's comment.
    unsafe { sendmsg(data, fd, &message(vector, count), 0) }
}

/// Sends what is in several places, one behind the other.
unsafe extern "C" fn sendmsg(
    data: Raw,
    fd: c_int,
    message: *const libc::msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: the module's comment.
    let (plugin, places) = unsafe { (plugin(data), places(message)) };
    // SAFETY: the module's comment.
    let peer = unsafe { bytes((*message).msg_name.cast(), (*message).msg_namelen as usize) };
    let peer = address::read(peer);
    // SAFETY: the module's comment.
    let part = |place: &libc::iovec| unsafe { bytes(place.iov_base.cast(), place.iov_len) };
    let all = places.map(|places| places.iter().map(part).collect::<Vec<_>>().concat());
    let mut done = 0;
    let sent = all.and_then(|all| {
        plugin.call(|sockets| sockets.send_rest(fd, &all, flags as u32, (peer, &mut done)))
    });
    result(sent, |sent| sent as isize)
}

/// In C it takes any number of arguments. Both ABIs that the project runs on pass an integer among those as they pass a
/// named one.
// SAFETY: the module's comment.
unsafe extern "C" fn fcntl(data: Raw, fd: c_int, command: c_int, value: c_long) -> c_int {
    // SAFETY: the module's comment.
    let plugin = unsafe { plugin(data) };
    let nonblocking = c_long::from(libc::O_NONBLOCK);
    match command {
        libc::F_GETFL => result(plugin.call(|sockets| sockets.is_nonblocking(fd)), |is_set| {
            (libc::O_RDWR | if is_set { libc::O_NONBLOCK } else { 0 }) as isize
        }) as c_int,
        libc::F_SETFL => {
            let is_set = value & nonblocking != 0;
            status(plugin.call(|sockets| sockets.set_nonblocking(fd, is_set)))
        }
        _ => status(Err(Errno::EINVAL)),
    }
}

/// As [`fcntl`].
// SAFETY: the module's comment.
unsafe extern "C" fn ioctl(data: Raw, fd: c_int, request: c_ulong, value: *mut c_int) -> c_int {
    // SAFETY: the module's comment.
    let plugin = unsafe { plugin(data) };
    if value.is_null() {
        return status(Err(Errno::EINVAL));
    }
    let count = match request {
        libc::FIONREAD => plugin.call(|sockets| sockets.readable_bytes(fd)),
        libc::TIOCOUTQ => plugin.call(|sockets| sockets.unsent_bytes(fd)),
        libc::FIONBIO => {
            // SAFETY: the module's comment.
            let is_set = unsafe { value.read() } != 0;
            return status(plugin.call(|sockets| sockets.set_nonblocking(fd, is_set)));
        }
        _ => Err(Errno::ENOTTY),
    };
    // SAFETY: the module's comment.
    status(count.map(|count| unsafe { value.write(count as c_int) }))
}

// SAFETY: the module's comment.
unsafe extern "C" fn close(data: Raw, fd: c_int) -> c_int {
    // SAFETY: the module's comment.
    let plugin = unsafe { plugin(data) };
    status(plugin.call(|sockets| sockets.close(fd)))
}

unsafe extern "C" fn shutdown(data: Raw, fd: c_int, how: c_int) -> c_int {
    // SAFETY: the module's comment.
    let plugin = unsafe { plugin(data) };
    status(plugin.call(|sockets| sockets.shutdown(fd, how)))
}

unsafe extern "C" fn getsockopt(
    data: Raw,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut u8,
    len: *mut Length,
) -> c_int {
    // SAFETY: the module's comment.
    let plugin = unsafe { plugin(data) };
    let found = match (level, name) {
        (SOL_SOCKET, SO_LINGER) => plugin.call(|sockets| sockets.linger(fd)).map(|linger| {
            let seconds = linger.map_or(0, |linger| linger.as_secs() as c_int);
            [c_int::from(linger.is_some()), seconds].map(c_int::to_ne_bytes).concat()
        }),
        (SOL_TCP, TCP_INFO) => plugin.call(|sockets| sockets.info(fd)).map(|all| info::bytes(&all)),
        _ => {
            let number = plugin.call(|sockets| sockets.option(fd, level, name));
            number.map(|number| number.to_ne_bytes().to_vec())
        }
    };
    // SAFETY: the module's comment.
    status(found.map(|found| unsafe { fill(&found, value, len, false) }))
}

unsafe extern "C" fn setsockopt(
    data: Raw,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const u8,
    len: Length,
) -> c_int {
    // SAFETY: the module's comment.
    let (plugin, value) = unsafe { (plugin(data), bytes(value, len as usize)) };
    let Some(number) = value.first_chunk().copied().map(c_int::from_ne_bytes) else {
        return status(Err(Errno::EINVAL));
    };
    if (level, name) != (SOL_SOCKET, SO_LINGER) {
        return status(plugin.call(|sockets| sockets.set_option(fd, level, name, number)));
    }
    let seconds = value.get(4..).and_then(|rest| rest.first_chunk().copied());
    let Some(seconds) = seconds.map(c_int::from_ne_bytes) else {
        return status(Err(Errno::EINVAL));
    };
    let linger = (number != 0).then(|| Duration::from_secs(seconds.max(0) as u64));
    status(plugin.call(|sockets| sockets.set_linger(fd, linger)))
}

/// The moment until which a call with such a time-out waits; `None`: for ever. Reckoned at the first look.
fn until(sockets: &Sockets, timeout_ms: c_int, begun: &mut Option<Instant>) -> Option<Instant> {
    let begin = *begun.get_or_insert(sockets.now());
    u64::try_from(timeout_ms).ok().map(|ms| begin + Duration::from_millis(ms))
}

// SAFETY: the module's comment.
unsafe extern "C" fn poll(
    data: Raw,
    polled: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: the module's comment.
    let plugin = unsafe { plugin(data) };
    let count = if polled.is_null() { 0 } else { count as usize };
    // SAFETY: the module's comment.
    let one = |at| unsafe { ((*polled.add(at)).fd, (*polled.add(at)).events) };
    let wanted = (0..count).map(one);
    let mut all: Vec<_> = wanted
        .map(|(descriptor, events)| PollFd { descriptor, events: events as u16 as u32, found: 0 })
        .collect();
    let mut begun = None;
    let ready = plugin.call(|sockets| {
        let until = until(sockets, timeout_ms, &mut begun);
        sockets.poll(&mut all, until)
    });
    for (at, PollFd { found, .. }) in all.into_iter().enumerate() {
        // SAFETY: the module's comment.
        unsafe { (*polled.add(at)).revents = found as c_short };
    }
    result(ready, |ready| ready as isize) as c_int
}

// SAFETY: the module's comment.
unsafe extern "C" fn epoll_create(data: Raw, size: c_int) -> c_int {
    // SAFETY: the module's comment.
    let plugin = unsafe { plugin(data) };
    if size <= 0 {
        return status(Err(Errno::EINVAL));
    }
    result(plugin.call(Sockets::epoll_create), |fd| fd as isize) as c_int
}

unsafe extern "C" fn epoll_ctl(
    data: Raw,
    set: c_int,
    operation: c_int,
    fd: c_int,
    wanted: *mut libc::epoll_event,
) -> c_int {
    // SAFETY: the module's comment.
    let plugin = unsafe { plugin(data) };
    let wanted = match wanted.is_null() {
        true => EpollEvent::default(),
        // SAFETY: the module's comment. It need not be aligned.
        false => {
            let libc::epoll_event { events, u64 } = unsafe { wanted.read_unaligned() };
            EpollEvent { events, data: u64 }
        }
    };
    let operation = match operation {
        libc::EPOLL_CTL_ADD => EpollOperation::Add,
        libc::EPOLL_CTL_DEL => EpollOperation::Remove,
        libc::EPOLL_CTL_MOD => EpollOperation::Change,
        _ => return status(Err(Errno::EINVAL)),
    };
    status(plugin.call(|sockets| sockets.epoll_control(set, operation, fd, wanted)))
}

// SAFETY: the module's comment.
unsafe extern "C" fn epoll_wait(
    data: Raw,
    set: c_int,
    found: *mut libc::epoll_event,
    most: c_int,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: the module's comment.
    let plugin = unsafe { plugin(data) };
    let mut all = vec![EpollEvent::default(); most.clamp(0, 4_096) as usize];
    let mut begun = None;
    let ready = plugin.call(|sockets| {
        let until = until(sockets, timeout_ms, &mut begun);
        sockets.epoll_wait(set, &mut all, until)
    });
    result(ready, |ready| {
        for (place, EpollEvent { events, data }) in all[..ready].iter().enumerate() {
            let event = libc::epoll_event { events: *events, u64: *data };
            // SAFETY: the module's comment: there is room for `most`.
            unsafe { found.add(place).write_unaligned(event) };
        }
        ready as isize
    }) as c_int
}

unsafe extern "C" fn netdev_send(data: Raw, packet: *const u8, len: usize) -> c_int {
    // SAFETY: the module's comment.
    let (plugin, packet) = unsafe { (plugin(data), bytes(packet, len)) };
    if plugin.inject(packet) { 0 } else { -1 }
}

unsafe extern "C" fn netdev_receive(
    data: Raw,
    packet: *mut u8,
    len: *mut usize,
    at_us: *mut i64,
) -> c_int {
    // SAFETY: the module's comment.
    let Some((at, sent)) = unsafe { plugin(data) }.receive() else {
        complain("cannot receive a packet: found none that is about to leave; look at the script");
        std::process::exit(1);
    };
    // SAFETY: the module's comment.
    unsafe {
        len.write(copy(&sent, packet, len.read()));
        at_us.write((EPOCH_SECONDS * 1_000_000 + at.as_micros()) as i64);
    }
    0
}

unsafe extern "C" fn usleep(data: Raw, microseconds: u32) -> c_int {
    // SAFETY: the module's comment.
    unsafe { plugin(data) }.sleep(Duration::from_micros(microseconds.into()));
    0
}

unsafe extern "C" fn gettimeofday(data: Raw, time: *mut libc::timeval, _zone: Raw) -> c_int {
    // SAFETY: the module's comment.
    let now = unsafe { plugin(data) }.time().as_micros();
    let tv_sec = (EPOCH_SECONDS + now / 1_000_000) as libc::time_t;
    let tv_usec = (now % 1_000_000) as libc::suseconds_t;
    // SAFETY: the module's comment.
    unsafe { time.write(libc::timeval { tv_sec, tv_usec }) };
    0
}

/// There are no pipes here.
extern "C" fn pipe(_data: Raw, _ends: *mut c_int) -> c_int {
    set_errno(libc::ENOSYS);
    -1
}

/// Programs that ask for it copy instead.
extern "C" fn splice(
    _data: Raw,
    _from: c_int,
    _from_offset: *mut i64,
    _to: c_int,
    _to_offset: *mut i64,
    _len: usize,
    _flags: u32,
) -> isize {
    set_errno(libc::EINVAL);
    -1
}
