//! Descriptors and sockets. A descriptor has the lowest number that is free, as POSIX asks; a socket outlives its
//! descriptor while its connection ends.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use domain::Cookie;

use crate::errno::Errno;

struct Slot<T> {
    /// Counts the sockets that have had this slot, so that no late event finds another one.
    generation: u32,
    value: Option<T>,
}

/// See the module's comment.
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// By number: the slot.
    descriptors: Vec<Option<u32>>,
    /// Numbers that were closed.
    free_numbers: BTreeSet<usize>,
    most: usize,
}

impl<T> Table<T> {
    /// With room for so many descriptors, and as many sockets without one.
    pub fn new(most: usize) -> Self {
        let (slots, free) = (Vec::new(), Vec::new());
        Self { slots, free, descriptors: Vec::new(), free_numbers: BTreeSet::new(), most }
    }

    /// Sockets without a descriptor that there is room for.
    pub fn has_room_for_orphan(&self) -> bool {
        let open = self.descriptors.len() - self.free_numbers.len();
        self.slots.len() - self.free.len() - open < self.most
    }

    /// A socket with a descriptor: both numbers.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn open(&mut self, value: T) -> Result<(i32, u32), Errno> {
        let number = self.free_numbers.pop_first().unwrap_or(self.descriptors.len());
        if number >= self.most {
            return Err(Errno::EMFILE);
        }
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        match self.slots.get_mut(slot as usize) {
            Some(free) => free.value = Some(value),
            None => self.slots.push(Slot { generation: 1, value: Some(value) }),
        }
        match self.descriptors.get_mut(number) {
            Some(free) => *free = Some(slot),
            None => self.descriptors.push(Some(slot)),
        }
        Ok((number as i32, slot))
    }

    /// The slot of a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn at(&self, descriptor: i32) -> Result<u32, Errno> {
        let number = usize::try_from(descriptor).map_err(|_| Errno::EBADF)?;
        self.descriptors.get(number).copied().flatten().ok_or(Errno::EBADF)
    }

    /// Frees a number.
    pub fn close(&mut self, descriptor: i32) {
        let number = descriptor as usize;
        if self.descriptors.get_mut(number).is_some_and(|open| open.take().is_some()) {
            self.free_numbers.insert(number);
        }
    }

    /// Frees a slot.
    pub fn remove(&mut self, slot: u32) -> Option<T> {
        self.rename(slot);
        let value = self.slots.get_mut(slot as usize)?.value.take()?;
        self.free.push(slot);
        Some(value)
    }

    /// Gives a slot's socket another name: what is on its way under the old one finds nothing.
    pub fn rename(&mut self, slot: u32) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.generation = slot.generation.wrapping_add(1).max(1);
        }
    }

    pub fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.value.as_ref()
    }

    pub fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.value.as_mut()
    }

    /// The name of a slot's socket towards the dataplane: never 0, which is that of a connection without a name.
    pub fn cookie(&self, slot: u32) -> Cookie {
        let generation = self.slots.get(slot as usize).map_or(0, |slot| slot.generation);
        Cookie(u64::from(generation) << 32 | u64::from(slot))
    }

    /// The slot that such a name is of, if its socket is still there.
    pub fn of_cookie(&self, cookie: Cookie) -> Option<u32> {
        let slot = cookie.0 as u32;
        (self.cookie(slot) == cookie && self.get(slot).is_some()).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_is_next_and_late_names_find_nothing() {
        let mut table = Table::new(3);
        let opened = [1, 2, 3].map(|value| table.open(value).expect("room"));
        assert_eq!(opened.map(|(number, _)| number), [0, 1, 2]);
        assert_eq!(table.open(4), Err(Errno::EMFILE));
        let (number, slot) = opened[1];
        let cookie = table.cookie(slot);
        table.close(number);
        assert_eq!((table.at(number), table.of_cookie(cookie)), (Err(Errno::EBADF), Some(slot)));
        assert_eq!(table.remove(slot), Some(2));
        assert_eq!((table.open(5), table.of_cookie(cookie)), (Ok((1, slot)), None));
        assert_eq!((table.at(-1), table.at(3)), (Err(Errno::EBADF), Err(Errno::EBADF)));
    }
}
