/* What a service manager learns (sd_notify(3), the protocol of Type=notify). */
#ifndef FS_NOTIFY_H
#define FS_NOTIFY_H

/* state: "READY=1", "STOPPING=1". Nothing if no manager asks for it by $NOTIFY_SOCKET. */
void fs_notify(const char *state);

#endif
