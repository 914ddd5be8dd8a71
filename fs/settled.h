/* Files that were opened while their checkpoint was young. A write may have been going on then that changes no time any
 * more, so what the kernel keeps of them may be old. When the checkpoint has settled, or changed, a thread has the
 * kernel drop these pages, also those that a program has mapped: the next access reads them again, through the file as
 * it was opened. Later opens are of another inode. */
#ifndef FS_SETTLED_H
#define FS_SETTLED_H

struct fs;

/* To be called once a second (pulse.h). Waits for pages that are being read, and so for storage. */
void fs_settled_look(struct fs *fs);

#endif
