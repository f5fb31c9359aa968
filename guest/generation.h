/* How programs learn that they run in a copy of the machine in which they were started. */
#ifndef FLOTILLA_GENERATION_H
#define FLOTILLA_GENERATION_H

int generation_ensure(const char *machine_id);
int generation_renew(void);
void generation_signal(void);

#endif
