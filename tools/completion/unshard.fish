# fish completion of unshard. `unshard __complete` knows verbs, options and names; this file knows fish.

function __unshard_complete
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l last (commandline --current-token --cut-at-cursor)
    unshard __complete $words[2..-1] "$last" 2>/dev/null
end

complete --command unshard --no-files --arguments '(__unshard_complete)'
